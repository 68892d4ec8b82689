"""How callers wake the thread that sends."""

from __future__ import annotations

import queue
import time

__all__ = ["Signals"]


class Signals:
    """Two flags that one thread waits for and any other raises.

    Raising one takes no lock: a call may end as garbage, in whatever thread and in the midst of whatever it was
    doing, also of waiting here.

    Attributes:
        woken: There is something to send.
        hurried: Somebody waits for it.
    """

    def __init__(self) -> None:
        self.woken = False
        self.hurried = False
        self._raised: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> None:
        """There is something to send."""
        if not self.woken:
            self.woken = True
            self._raised.put(None)

    def hurry(self) -> None:
        """Somebody waits for it."""
        if not self.hurried:
            self.hurried = True
            self._raised.put(None)

    def take_hurry(self) -> bool:
        """Whether somebody waits; from here on it is the caller's to see to."""
        # In this order: whoever hurries in between is seen to as well, or still is to be.
        hurried = self.hurried
        if hurried:
            self.hurried = False
        return hurried

    def wait_woken(self, seconds: float) -> bool:
        """Wait until woken, or hurried; returns whether it is."""
        return self._wait(seconds, hurried_only=False)

    def wait_hurried(self, seconds: float) -> bool:
        """Wait until hurried; returns whether it is."""
        return self._wait(seconds, hurried_only=True)

    def _wait(self, seconds: float, *, hurried_only: bool) -> bool:
        ends = time.monotonic() + seconds
        while not (self.hurried or (self.woken and not hurried_only)):
            left = ends - time.monotonic()
            if left <= 0:
                return False
            try:
                self._raised.get(timeout=left)
            except queue.Empty:
                return False
        return True
