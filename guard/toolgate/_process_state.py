"""State that all guards of this process share: for each gateway, calls that wait for an approval and denied actions."""

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

# Largest number of stored pairs of agent and action, to limit memory. If there are more, a denied pair is missing: no
# call may then run without a decision (`fail_open`) any more.
_MAX_DENIED: Final = 10_000
_PORTS: Final = {"http": 80, "https": 443}


class PendingApproval:
    """Registration of one call as waiting for an approval request.

    Args:
        pending: All waiting calls of this process.
    """

    def __init__(self, pending: PendingApprovals) -> None:
        self._pending = pending
        self.waits_for: tuple[int, str] | None = None

    def begin(self, approval_id: str) -> None:
        """Register that the call waits for this approval request; this replaces an earlier registration of the call."""
        # The process id is included because a forked child inherits the parent's calls, which do not wait in the child.
        self._pending.join(self, (os.getpid(), approval_id))

    def end(self) -> bool:
        """Remove the registration; return True if no other call of this process waits for the same request."""
        return self._pending.leave(self)


class PendingApprovals:
    """Calls of this process that wait for approval requests of one gateway.

    Equal calls share an approval request. An interrupted call withdraws its request only if no other call waits for it.
    """

    def __init__(self) -> None:
        # One lock per process id: a lock that a thread holds during a fork is never released in the child, which
        # therefore needs a lock of its own.
        # The locks are reentrant: while a thread holds one, the garbage collector may close a waiting coroutine, which
        # calls `leave` on the same thread.
        self._locks: dict[int, threading.RLock] = {}
        # Weak references, so that a call that ended without `leave` does not count as waiting.
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
            # Iterates over a copy, because a garbage collection may call `leave` and change the set meanwhile.
            others = [(each, each()) for each in list(self._waiting)]
            for collected in [each for each, other in others if other is None]:
                self._waiting.discard(collected)
            return not any(other.waits_for == left for _, other in others if other is not None)

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())


class DeniedActions:
    """Pairs of agent and action that a gateway did not allow in its last decision.

    Calls with such a pair never run without a decision, not even with `fail_open`. The class uses no lock: each change
    is a single operation of a set, and a lock that a thread holds during a fork would block the child for ever. A
    forked child begins with a copy of the parent's pairs.

    Args:
        max_pairs: Largest number of stored pairs of agent and action; after that, all actions count as denied.
    """

    def __init__(self, max_pairs: int = _MAX_DENIED) -> None:
        self._max_pairs = max_pairs
        self._denied: set[tuple[str, str]] = set()
        self._full = False
        self._counts: dict[int, itertools.count[int]] = {}

    def note(self, check: Check, decision: Decision) -> None:
        """Store the pair of agent and action if the decision did not allow the call; else remove it."""
        if not decision.allowed:
            self.add(check)
        elif check.approval_id is None:
            # If an approval allowed the call, the pair stays stored: the next call of the action requires an approval
            # again.
            self._denied.discard((check.who.agent_id, check.action))

    def add(self, check: Check) -> None:
        """Store the agent and action of a check that the gateway did not allow, or rejected with an error."""
        pair = (check.who.agent_id, check.action)
        if len(self._denied) >= self._max_pairs and pair not in self._denied:
            self._full = True
        else:
            self._denied.add(pair)

    def contains(self, agent_id: str, action: str) -> bool:
        """Return True if the last decision did not allow the agent this action, or if the limit of pairs is reached."""
        return self._full or (agent_id, action) in self._denied

    def count_unchecked(self) -> int:
        """Count one more call that runs without a decision, and return the number of such calls in this process."""
        return next(self._counts.setdefault(os.getpid(), itertools.count(1)))


def pending_approvals_at(url: str) -> PendingApprovals:
    """Return the registered waiting calls of the gateway at `url`; guards with the same address share this object."""
    return _pending.setdefault(url, PendingApprovals())


def denied_actions_at(url: str) -> DeniedActions:
    """Return the denied actions of the gateway at `url`; all guards of this gateway share this object.

    Addresses with the same scheme, host and port are one gateway: `https://host` and `https://host:443/path` too.
    """
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme)
    return _denied.setdefault((parts.scheme, (parts.hostname or "").rstrip("."), port), DeniedActions())


# By the address of the gateway.
_pending: dict[str, PendingApprovals] = {}
# By scheme, host and port of the gateway.
_denied: dict[tuple[str, str, int | None], DeniedActions] = {}
