"""State about gateways that all guards of this process share: pending approval requests and denied actions."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Final
from urllib.parse import urlsplit
from weakref import ref

from toolgate._models import Check, Decision

__all__ = [
    "DeniedActions",
    "PendingApproval",
    "PendingApprovals",
    "denied_actions_at",
    "pending_approvals_at",
]

# Pairs of agent and action. They are few; beyond this number nothing fails open.
_MAX_DENIED: Final = 10_000
_PORTS: Final = {"http": 80, "https": 443}


class PendingApproval:
    """Approval request that one call waits for."""

    def __init__(self, pending: PendingApprovals) -> None:
        self._pending = pending
        self.waits_for: tuple[int, str] | None = None

    def begin(self, approval_id: str) -> None:
        """Wait for this approval request, and no other."""
        # With the process id: after a fork the parent's calls do not belong to this process.
        self._pending.join(self, (os.getpid(), approval_id))

    def end(self) -> bool:
        """Stop waiting; return True if no other call of this process waits for the same request."""
        return self._pending.leave(self)


class PendingApprovals:
    """Calls of this process that wait for approval requests of one gateway.

    Equal calls share a request; the last of them that is interrupted withdraws it.
    """

    def __init__(self) -> None:
        # A lock per process: a fork may happen while another thread holds it. Reentrant: the garbage collector may
        # close a waiting coroutine while this thread is in one of the methods.
        self._locks: dict[int, threading.RLock] = {}
        # Weak: a call that ended without `leave` must not count.
        self._waiting: set[ref[PendingApproval]] = set()

    def join(self, pending: PendingApproval, waits_for: tuple[int, str]) -> None:
        """Register that a call waits for an approval request."""
        with self._lock():
            pending.waits_for = waits_for
            self._waiting.add(ref(pending))

    def leave(self, pending: PendingApproval) -> bool:
        """Unregister a call; return True if no other call waits for the same request."""
        with self._lock():
            left, pending.waits_for = pending.waits_for, None
            self._waiting.discard(ref(pending))
            # A copy: a garbage collection in between changes the set.
            others = [(each, each()) for each in list(self._waiting)]
            for collected in [each for each, other in others if other is None]:
                self._waiting.discard(collected)
            return not any(other.waits_for == left for _, other in others if other is not None)

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())


class DeniedActions:
    """Actions that a gateway denied or held in its last decision for an agent: they do not fail open.

    No lock: every change is one operation of a set, and a lock that is held during a fork would block the child for
    ever. A child knows what its parent knew.

    Args:
        max_pairs: Number of pairs of agent and action that are remembered.
    """

    def __init__(self, max_pairs: int = _MAX_DENIED) -> None:
        self._max_pairs = max_pairs
        self._denied: set[tuple[str, str]] = set()
        self._full = False
        self._counts: dict[int, itertools.count[int]] = {}

    def note(self, check: Check, decision: Decision) -> None:
        """Remember the decision of a check."""
        if not decision.allowed:
            self.add(check)
        elif check.approval_id is None:
            # With an approval the action is still one that requires approval.
            self._denied.discard((check.who.agent_id, check.action))

    def add(self, check: Check) -> None:
        """Remember that the gateway did not allow the action, or rejected the request."""
        pair = (check.who.agent_id, check.action)
        if len(self._denied) >= self._max_pairs and pair not in self._denied:
            self._full = True
        else:
            self._denied.add(pair)

    def contains(self, agent_id: str, action: str) -> bool:
        """Return True if the action was last denied to the agent, or may have been."""
        return self._full or (agent_id, action) in self._denied

    def count_unchecked(self) -> int:
        """Count one call that runs without a decision; return the number of them in this process."""
        return next(self._counts.setdefault(os.getpid(), itertools.count(1)))


def pending_approvals_at(url: str) -> PendingApprovals:
    """Return the pending approvals of a gateway: two guards may wait for the same request."""
    return _pending.setdefault(url, PendingApprovals())


def denied_actions_at(url: str) -> DeniedActions:
    """Return the denied actions of a gateway, whichever guard asked it and however its address is written."""
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme)
    return _denied.setdefault((parts.scheme, (parts.hostname or "").rstrip("."), port), DeniedActions())


_pending: dict[str, PendingApprovals] = {}
_denied: dict[tuple[str, str, int | None], DeniedActions] = {}
