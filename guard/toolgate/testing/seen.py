"""What the fake gateway was asked and told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolgate._capture.jsontext import exact

__all__ = ["Checked", "Logged", "holds", "listed"]


@dataclass(frozen=True, slots=True)
class Checked:
    """A check that the fake gateway answered.

    Attributes:
        action: The action.
        agent_id: The agent.
        context: The arguments; numbers with a fraction are decimals.
        outcome: What it was answered.
        reason: Why it was not allowed.
        approval_id: The request for approval that was made or named.
        run_id: The run, if one was named.
        dry_run: Whether it was only asked, and changed nothing.
        stated_reason: Text that the agent gave for the approver.
    """

    action: str
    agent_id: str
    context: dict[str, Any]
    outcome: Literal["allowed", "blocked", "held"]
    reason: str | None
    approval_id: str | None
    run_id: str | None
    dry_run: bool
    stated_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Logged:
    """A log entry that the fake gateway took.

    Attributes:
        action: The action.
        agent_id: The agent.
        status: `success`, `failed`, `pending` or `denied`.
        context: The arguments, and what is said beside them.
        approval_id: The request for approval it belongs to.
        run_id: The run, if one was named.
    """

    action: str
    agent_id: str
    status: str
    context: dict[str, Any]
    approval_id: str | None
    run_id: str | None


def holds(context: Mapping[str, Any], members: Mapping[str, Any]) -> bool:
    """Whether a context has these members; numbers are compared by their decimal value."""
    return all(name in context and exact(context[name]) == exact(value) for name, value in members.items())


def listed(things: Iterable[object]) -> str:
    """Things as a failed assertion shows them, one a line."""
    return "".join(f"\n  {thing!r}" for thing in things) or " nothing"
