"""The fake gateway's clock: it goes with the real one, and leaps where others would sleep."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

__all__ = ["LeapingClock"]


class LeapingClock:
    """Monotonic seconds."""

    def __init__(self) -> None:
        self._leapt = 0.0

    def now(self) -> float:
        """Seconds."""
        return time.monotonic() + self._leapt

    def leap(self, seconds: float) -> None:
        """Let `seconds` have passed."""
        self._leapt += max(0.0, seconds)

    def wire(self, moment: float) -> str:
        """A moment of this clock as the gateway writes it."""
        at = datetime.now(UTC) + timedelta(seconds=moment - time.monotonic())
        return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
