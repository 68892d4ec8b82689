"""Who of this process waits for which approval: equal calls share one, and only the last to give up withdraws it."""

from __future__ import annotations

import os
import threading
from weakref import ref

__all__ = ["Waiter", "Waiters", "waiters_at"]


class Waiter:
    """One call's interest in an approval.

    Args:
        waiters: Those at the same gateway.
    """

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self.waits_for: tuple[int, str] | None = None

    def begin(self, approval_id: str) -> None:
        """Wait for this approval, and no other."""
        # With the process: after a fork the parent's waiters are not this process's.
        self._waiters.join(self, (os.getpid(), approval_id))

    def end(self) -> bool:
        """Wait no longer; returns whether nobody else of this process waits for the same."""
        return self._waiters.leave(self)


class Waiters:
    """The waiting calls of one process at one gateway."""

    def __init__(self) -> None:
        # By process: a fork may happen while another thread holds it. Reentrant: a coroutine that is collected
        # as garbage leaves in the midst of whatever this thread is doing here.
        self._locks: dict[int, threading.RLock] = {}
        # Weak: a call that ended in an odd way must not count for ever.
        self._waiting: set[ref[Waiter]] = set()

    def join(self, waiter: Waiter, waits_for: tuple[int, str]) -> None:
        """Let `waiter` wait for that."""
        with self._lock():
            waiter.waits_for = waits_for
            self._waiting.add(ref(waiter))

    def leave(self, waiter: Waiter) -> bool:
        """Let `waiter` wait no more; returns whether nobody else waits for the same."""
        with self._lock():
            left, waiter.waits_for = waiter.waits_for, None
            self._waiting.discard(ref(waiter))
            # A copy: whoever is collected meanwhile changes what is looked through.
            others = [(each, each()) for each in list(self._waiting)]
            for gone in [each for each, other in others if other is None]:
                self._waiting.discard(gone)
            return not any(other.waits_for == left for _, other in others if other is not None)

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())


def waiters_at(url: str) -> Waiters:
    """Those of this process at a gateway: two guards may have asked it the same."""
    return _at.setdefault(url, Waiters())


_at: dict[str, Waiters] = {}
