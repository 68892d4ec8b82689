"""State that all guards of this process share.

For each gateway, this module stores the denied actions and the calls that wait for approvals. It also contains the
rules for guarded calls that are made while the interpreter shuts down.

The shutdown has three phases. First, exit handlers (`atexit`) run: threads still work, and the SDK sends checks and log
entries as usual. Second, all exit handlers have run: a background thread would be stopped before it can send an entry.
A call therefore sends its own log entry before it returns, until the exit timeout of the outbox has passed. Third,
the interpreter finalizes: imports fail, and starting a thread blocks for ever. Calls then raise `GatewayUnavailable`.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from weakref import ref

from toolgate.errors import GatewayUnavailable

if TYPE_CHECKING:
    from toolgate._models import Check, Decision

__all__ = [
    "DeniedActions",
    "PendingApproval",
    "PendingApprovals",
    "are_handlers_done",
    "denied_actions_at",
    "ensure_not_finalizing",
    "pending_approvals_at",
]

# Maximum number of stored pairs of agent and action, which limits memory. If more pairs are denied, the others are not
# stored. From then on, no call may run without a decision (`fail_open`).
_MAX_DENIED: Final = 10_000
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(eq=False)
class PendingApproval:
    """Registration of one call while it waits for an approval request.

    Attributes:
        pending: All waiting calls of this process.
        waits_for: Process id, and id of the approval request; None while the call does not wait.
    """

    pending: PendingApprovals
    waits_for: tuple[int, str] | None = None

    def begin(self, approval_id: str) -> None:
        """Register that the call waits for this approval request. An earlier registration of the call is replaced."""
        # The process id is included because a forked child inherits the parent's calls, which do not wait in the child.
        self.pending.join(self, (os.getpid(), approval_id))

    def end(self) -> bool:
        """Remove this call's registration; return True if no other call of this process waits for the same request."""
        return self.pending.leave(self)


class PendingApprovals:
    """Calls of this process that wait for approval requests of one gateway.

    Calls with the same agent, action and arguments share an approval request. An interrupted call withdraws the request
    only if no other call waits for it.
    """

    def __init__(self) -> None:
        # Each process id has its own lock. If another thread holds a lock during a fork, nothing releases the child's
        # copy of the lock.
        # The locks are reentrant: while a thread holds one, the garbage collector may close a waiting coroutine, which
        # calls `leave` on the same thread.
        self._locks: dict[int, threading.RLock] = {}
        # The references are weak, so that a call that ended without `leave` does not count as waiting.
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
            # The loop uses a copy of the set, because the garbage collector may call `leave`, which changes the set.
            others = [(each, each()) for each in list(self._waiting)]
            for collected in [each for each, other in others if other is None]:
                self._waiting.discard(collected)
            return not any(other.waits_for == left for _, other in others if other is not None)

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())


class DeniedActions:
    """Pairs of agent and action for which a gateway's last decision did not allow the call.

    Calls with such a pair never run without a decision, not even with `fail_open`. A forked child begins with a copy of
    the parent's pairs. The class needs no lock, because each change is a single operation of a set. A lock that a
    thread holds during a fork would block the child for ever.

    Args:
        max_pairs: Maximum number of stored pairs of agent and action. Above this number, all actions count as denied.
    """

    def __init__(self, max_pairs: int = _MAX_DENIED) -> None:
        self._max_pairs = max_pairs
        self._denied: set[tuple[str, str]] = set()
        self._full = False
        self._counts: dict[int, itertools.count[int]] = {}

    def note(self, check: Check, decision: Decision) -> None:
        """Store the pair of agent and action if the decision did not allow the call; otherwise, remove the pair."""
        if not decision.allowed:
            self.add(check)
        elif check.approval_id is None:
            # The pair is removed only if the call needed no approval. After an approved call, the next call requires an
            # approval again.
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
    """Return the `PendingApprovals` of the gateway at `url`; all guards with the same address share one object."""
    return _pending.setdefault(url, PendingApprovals())


def denied_actions_at(url: str) -> DeniedActions:
    """Return the `DeniedActions` of the gateway at `url`; all guards of this gateway share one object.

    Addresses with the same scheme, host and port are one gateway, for example `https://host` and
    `https://host:443/path`.
    """
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme)
    return _denied.setdefault((parts.scheme, (parts.hostname or "").rstrip("."), port), DeniedActions())


# Calls that wait for approval requests, by the address of their gateway.
_pending: dict[str, PendingApprovals] = {}
# Denied actions by the scheme, host and port of their gateway.
_denied: dict[tuple[str, str, int | None], DeniedActions] = {}


_done = False


def are_handlers_done() -> bool:
    """Return True if this module's exit handler has run; after that, no background thread can send log entries."""
    return _done


def ensure_not_finalizing(
    is_finalizing: Callable[[], bool] = sys.is_finalizing,
    # The class is a default value, because module globals may be None while the interpreter is finalizing.
    unavailable: type[GatewayUnavailable] = GatewayUnavailable,
) -> None:
    """Raise an error if the interpreter is finalizing, because no check can be sent any more.

    Raises:
        GatewayUnavailable: The interpreter is finalizing. The tool does not run, not even with `fail_open`.
    """
    if is_finalizing():
        raise unavailable(
            "the call cannot be checked, because the Python interpreter is shutting down; make the call "
            "before the program ends: not in __del__, but for example in an atexit handler"
        )


@atexit.register
def _send_rest() -> None:
    """Send the log entries of guarded calls that other exit handlers made.

    Exit handlers run in the reverse order of their registration. This handler is registered at import, so it runs after
    the outbox's own handler, which is registered at the first call. If an exit handler makes that first call, the
    outbox's handler does not run at all, and only this handler sends the log entries.
    """
    global _done  # noqa: PLW0603 - the variable belongs to the whole process
    _done = True
    if (recorder := sys.modules.get("toolgate._outbox.recorder")) is not None:
        recorder.close_all()
