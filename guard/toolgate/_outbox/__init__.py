"""Outbox: log entries are stored on this machine until the gateway has acknowledged them.

This module contains the exceptions that all modules of the outbox raise.
"""

from __future__ import annotations

__all__ = ["Busy", "OutboxFault"]


class OutboxFault(Exception):
    """The outbox cannot be used: log entries cannot be stored or read.

    Args:
        reason: The problem, for the error message.
        hint: The fix, for the error message.
        full: Whether the only problem is that the outbox has reached its maximum number of entries or bytes.
    """

    def __init__(self, reason: str, hint: str, *, full: bool = False) -> None:
        super().__init__(f"{reason}; {hint}")
        self.full = full
        self.reason = reason
        self.hint = hint


class Busy(Exception):
    """Another thread or process is using the outbox; the caller can try again."""
