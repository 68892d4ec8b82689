"""An intent on its way from the thread that wrote it to the task that asked for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from toolgate._outbox.entries import Intent

__all__ = ["Handing"]


class Handing:
    """Hands one intent over, or has it struck out when nobody takes it any more, whichever comes first.

    Args:
        strike: Has an intent struck out.
    """

    def __init__(self, strike: Callable[[Intent], None]) -> None:
        self._strike = strike
        self._lock = threading.Lock()
        self._given_up = False
        self._intent: Intent | None = None

    def hand_over(self, intent: Intent | None) -> Intent | None:
        """It is written, if there was one to write; returns it."""
        with self._lock:
            self._intent = intent
            late = self._given_up
        if late and intent is not None:
            self._strike(intent)
        return intent

    def give_up(self) -> None:
        """Nobody waits for it any more: its tool does not run."""
        with self._lock:
            self._given_up = True
            intent = self._intent
        if intent is not None:
            self._strike(intent)
