"""Identifiers: UUIDv7 as strings, ordered by time, unguessable in the rest (decisions §2)."""

import os
import time
import uuid


def new_id() -> str:
    """Return a new UUIDv7 (RFC 9562 §5.7): 48 bits of milliseconds, 74 bits from the system's CSPRNG."""
    milliseconds = time.time_ns() // 1_000_000
    number = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=number))


def is_id(text: str) -> bool:
    """Say whether a text could be one of our identifiers, in the one spelling we write."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
