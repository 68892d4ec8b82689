"""When to send: pauses after faults, and what is old at half of the rate at most (decisions §13)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["Pace"]

_FIRST: Final = 0.1
_LONGEST: Final = 30.0
_WINDOW: Final = 60.0


class Pace:
    """Knows when the next request may go.

    Args:
        clock: Monotonic seconds.
        wall: Seconds since 1970.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._faults = 0
        self._lasting = False
        self._next = 0.0
        self._asked_until = 0.0
        self._old_after = 0.0

    @property
    def faulty(self) -> bool:
        """Whether the last request failed."""
        return self._faults > 0

    def failed(self, asked: float = 0.0, *, lasting: bool = False) -> None:
        """A request failed.

        Args:
            asked: For how many seconds of peace the gateway asked.
            lasting: What hinders does not go away within seconds: a refused key, a full month.
        """
        longest = _LONGEST if lasting else min(_LONGEST, _FIRST * 2.0 ** min(self._faults, 20))
        self._faults += 1
        self._lasting = lasting
        now = self._clock()
        # Spread, so that processes that failed together do not come back together.
        self._next = now + longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it
        self._asked_until = now + asked

    def worked(self) -> None:
        """A request was answered as it should be."""
        self._faults, self._next, self._asked_until = 0, 0.0, 0.0

    def nudge(self) -> None:
        """The gateway has just answered something else: it need not be waited for as long as for a dead one."""
        if not self._lasting:
            self._next = min(self._next, self._clock() + _FIRST * 10)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Read an answer's `X-RateLimit-*`: half of each window is left to the calls."""
        limit, left, reset = (
            _number(headers.get(f"x-ratelimit-{name}")) for name in ("limit", "remaining", "reset")
        )
        if limit is None or left is None or reset is None:
            return
        self._old_after = 0.0
        if left * 2 <= limit:
            # The gateway's clock may be wrong, or ours; a window is a minute.
            self._old_after = self._clock() + min(_WINDOW, max(1.0, reset - self._wall()))

    def pause(self, *, old: bool = False, hurried: bool = False) -> float:
        """Seconds until the next request may go.

        Args:
            old: It carries what has waited.
            hurried: Somebody waits for it: only what the gateway asked for counts.
        """
        until = self._asked_until if hurried else max(self._next, self._asked_until)
        return max(0.0, max(until, self._old_after if old else 0.0) - self._clock())


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
