"""Identifiers: UUIDv7 as strings, ordered by time, unguessable in the rest (decisions §2)."""

import os
import re
import time

#: the two bits 10, and two of chance
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
#: hexadecimal digits of chance that an identifier needs, and for how many they are fetched at once: asking the system
#: for each would be a tenth of a check
_DIGITS = 20
_STOCK = 128
_stock: list[str] = []


def new_id() -> str:
    """Return a new UUIDv7 (RFC 9562 §5.7): 48 bits of milliseconds, 74 bits from the system's CSPRNG."""
    # Written at once: by way of `uuid.UUID` it takes five times as long, and every check has two.
    time_part = f"{time.time_ns() // 1_000_000:012x}"
    chance = _chance()
    variant = _VARIANT[chance[3]]
    return f"{time_part[:8]}-{time_part[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[7:19]}"


def _chance() -> str:
    while True:
        try:
            # No other thread is given the same.
            return _stock.pop()
        except IndexError:
            text = os.urandom(_STOCK * _DIGITS // 2).hex()
            _stock.extend(text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS))


if hasattr(os, "register_at_fork"):
    # Nor any other process.
    os.register_at_fork(after_in_child=_stock.clear)


def is_id(text: str) -> bool:
    """Say whether a text could be one of our identifiers, in the one spelling we write."""
    return _WRITTEN(text) is not None


_WRITTEN = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
