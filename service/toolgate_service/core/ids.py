"""Identifiers: UUIDv7 strings, which sort by creation time."""

import os
import re
import time

#: maps a random hexadecimal digit to the digit of the UUID variant, whose upper two bits are 10
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
#: number of random hexadecimal digits in an identifier
_DIGITS = 20
#: Number of identifiers for which one system call fetches the random digits. A separate system call for each identifier
#: would take 10 % of the time of a check.
_STOCK = 128
_stock: list[str] = []


def new_id() -> str:
    """Return a new UUIDv7 (RFC 9562 §5.7): 48 bits of Unix time in milliseconds and 74 random bits from the system."""
    # Every check needs two identifiers. `uuid.UUID` takes five times as long as this formatting.
    time_part = f"{time.time_ns() // 1_000_000:012x}"
    digits = _random_digits()
    variant = _VARIANT[digits[3]]
    return f"{time_part[:8]}-{time_part[8:]}-7{digits[:3]}-{variant}{digits[4:7]}-{digits[7:19]}"


def _random_digits() -> str:
    while True:
        try:
            # `list.pop` is atomic, so two threads never receive the same digits.
            return _stock.pop()
        except IndexError:
            text = os.urandom(_STOCK * _DIGITS // 2).hex()
            _stock.extend(text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS))


if hasattr(os, "register_at_fork"):
    # Parent and child process must not use the same prefetched digits.
    os.register_at_fork(after_in_child=_stock.clear)


def is_id(text: str) -> bool:
    """Return whether a text has the form of an identifier: a UUID in lower case with dashes."""
    return _WRITTEN(text) is not None


_WRITTEN = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
