"""Identifiers of database rows: UUIDs of version 7, which sort by creation time."""

import os
import re
import time
from datetime import MAXYEAR, UTC, datetime, timedelta

#: maps a random hexadecimal digit to 8, 9, a or b, because the variant field of a UUID must begin with the bits 10
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
#: number of random hexadecimal digits in each identifier
_DIGITS = 20
#: number of identifiers whose random digits are fetched with one system call; one call per identifier would take 10 %
#: of the time of a check
_STOCK = 128
_stock: list[str] = []
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_id() -> str:
    """Return a new UUID of version 7 (RFC 9562): the Unix time in milliseconds (48 bits) and 74 random bits."""
    # Format the digits directly, because every check needs two identifiers and `uuid.UUID` takes five times as long.
    time_part = f"{time.time_ns() // 1_000_000:012x}"
    digits = _random_digits()
    variant = _VARIANT[digits[3]]
    return f"{time_part[:8]}-{time_part[8:]}-7{digits[:3]}-{variant}{digits[4:7]}-{digits[7:19]}"


def _random_digits() -> str:
    while True:
        try:
            # `list.pop` is atomic, so two threads never receive the same random digits.
            return _stock.pop()
        except IndexError:
            text = os.urandom(_STOCK * _DIGITS // 2).hex()
            _stock.extend(text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS))


if hasattr(os, "register_at_fork"):
    # Clear the prefetched digits after a fork, because parent and child process would otherwise create the same
    # identifiers.
    os.register_at_fork(after_in_child=_stock.clear)


def is_id(text: str) -> bool:
    """Return whether a text has the form of an identifier: a lower-case UUID with dashes."""
    return _WRITTEN(text) is not None


_WRITTEN = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def time_of_id(text: str) -> datetime | None:
    """Return the time in an identifier; None if the text is not an identifier or the time is out of range."""
    if not is_id(text):
        return None
    try:
        created = _EPOCH + timedelta(milliseconds=int(text[:8] + text[9:13], 16))
    except OverflowError:
        return None
    # Reject times in the last possible year, because adding a tolerance to them could overflow.
    return created if created.year < MAXYEAR else None
