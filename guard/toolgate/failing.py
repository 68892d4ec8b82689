"""When a call that fails open may run unasked, and how that is told."""

from __future__ import annotations

import itertools
import logging
import os
from typing import Final
from urllib.parse import urlsplit

from toolgate.decision import Decision
from toolgate.errors import ConfigurationError, GatewayUnavailable
from toolgate.events import tell
from toolgate.steps import Check, Refusals, Unanswered

__all__ = ["RefusedActions", "forgiven", "refusals_at", "valid_fail_open"]

# Pairs of agent and action. They are few, and beyond it nothing is forgotten: nothing fails open any more.
_BOUND: Final = 10_000
_LONGEST_WHY: Final = 200
_PORTS: Final = {"http": 80, "https": 443}


class RefusedActions(Refusals):
    """What the gateway held or blocked when this process last asked it.

    No lock: every change is one operation of a set, and a lock held while the process forks would stop
    the child for good. A child knows what its parent knew.

    Args:
        bound: How many pairs of agent and action are remembered.
    """

    def __init__(self, bound: int = _BOUND) -> None:
        self._bound = bound
        self._refused: set[tuple[str, str]] = set()
        self._full = False
        self._counts: dict[int, itertools.count[int]] = {}

    def note(self, check: Check, decision: Decision) -> None:
        """Remember the gateway's answer to a check."""
        pair = (check.who.agent_id, check.action)
        if not decision.allowed:
            self.refuse(check)
        elif check.approval_id is None:
            # Let through by an approval it is still an action that a person is asked about.
            self._refused.discard(pair)

    def refuse(self, check: Check) -> None:
        """Remember that the gateway did not let the agent do the action, or not even ask."""
        pair = (check.who.agent_id, check.action)
        if len(self._refused) >= self._bound and pair not in self._refused:
            self._full = True
        else:
            self._refused.add(pair)

    def holds(self, check: Check) -> bool:
        """Whether the action was last refused to the agent, or may have been."""
        return self._full or (check.who.agent_id, check.action) in self._refused

    def count(self) -> int:
        """Count one call that runs unasked; returns how many of this process have."""
        return next(self._counts.setdefault(os.getpid(), itertools.count(1)))


def forgiven(check: Check, error: GatewayUnavailable) -> Unanswered | None:
    """What stands for the decision of a call that fails open, told to the standard logging; or None."""
    refusals = check.fail_open
    if refusals is None or error.answered or error.reached or refusals.holds(check):
        return None
    why = str(error)[:_LONGEST_WHY]
    tell(
        "fail_open",
        check.action,
        check.who.agent_id,
        "unasked",
        reason=f"call {refusals.count()} of this process that runs without the gateway's leave: {why}",
        level=logging.WARNING,
    )
    return Unanswered(why)


def refusals_at(url: str) -> RefusedActions:
    """What this process knows of the gateway at `url`, whichever guard asked it."""
    parts = urlsplit(url)
    # However it is written: with the port that is meant anyway, or with the root's dot.
    port = parts.port or _PORTS.get(parts.scheme)
    return _at.setdefault((parts.scheme, (parts.hostname or "").rstrip("."), port), RefusedActions())


def valid_fail_open(fail_open: object) -> bool:
    """Return `fail_open` if it can be one.

    Raises:
        ConfigurationError: Naming it and the cure.
    """
    if isinstance(fail_open, bool):
        return fail_open
    raise ConfigurationError(f"fail_open is {fail_open!r}; use True or False")


_at: dict[tuple[str, str, int | None], RefusedActions] = {}
