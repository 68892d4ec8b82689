"""Checks and log entries that a fake gateway received, and assertions about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolgate._capture.jsontext import exact

__all__ = ["Checked", "Logged", "Outcome", "Records"]

Outcome: TypeAlias = Literal["allowed", "blocked", "held"]


@dataclass(frozen=True, slots=True)
class Checked:
    """Check that the fake gateway received, and the decision that it returned.

    Attributes:
        context: The arguments of the call; numbers with a fraction are `Decimal` objects.
        outcome: `allowed`, `blocked` (denied) or `held` (approval required).
        reason: The gateway's reason for not allowing the call, or None.
        approval_id: Id of the approval request to which the decision belongs, or None.
        stated_reason: The agent's reason for the call, which the approver sees, or None.
    """

    action: str
    agent_id: str
    context: dict[str, Any]
    outcome: Outcome
    reason: str | None
    approval_id: str | None
    run_id: str | None
    dry_run: bool
    stated_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Logged:
    """Log entry that the fake gateway received.

    Attributes:
        status: `success`, `failed`, `pending` or `denied`.
        context: The arguments of the call and details of its outcome.
    """

    action: str
    agent_id: str
    status: str
    context: dict[str, Any]
    approval_id: str | None
    run_id: str | None


class Records(ABC):
    """Base class of `FakeGateway`: assertions about the checks and log entries that the gateway received."""

    @property
    @abstractmethod
    def checks(self) -> list[Checked]:
        """The checks that the gateway received, in order."""

    @property
    @abstractmethod
    def entries(self) -> list[Logged]:
        """The log entries that the gateway received, in order."""

    def assert_checked(self, action: str, **context: object) -> Checked:
        """Return the last check of `action` whose arguments contain `context`; fail if there is none."""
        __tracebackhide__ = True
        checks = self.checks
        for each in reversed(checks):
            if each.action == action and _contains(each.context, context):
                return each
        raise AssertionError(
            f"expected a check of action {action!r} with the arguments {context!r}; these checks were "
            f"made:{_listing(checks)}"
        )

    def assert_not_checked(self, action: str | None = None) -> None:
        """Fail if there was a check of `action`; without `action`, fail if there was any check."""
        __tracebackhide__ = True
        if found := [each for each in self.checks if action in {None, each.action}]:
            raise AssertionError(f"expected no checks, but these were made:{_listing(found)}")

    def assert_logged(self, action: str, status: str, **context: object) -> Logged:
        """Return the last log entry with this action and status whose arguments and details contain `context`.

        Fail if there is no such entry.
        """
        __tracebackhide__ = True
        entries = self.entries
        for each in reversed(entries):
            if (each.action, each.status) == (action, status) and _contains(each.context, context):
                return each
        raise AssertionError(
            f"expected a log entry of action {action!r} with status {status!r} and {context!r}; these "
            f"entries were logged:{_listing(entries)}"
        )


def _contains(context: Mapping[str, Any], members: Mapping[str, Any]) -> bool:
    # `exact` returns the same text for equal numbers, such as 40, 40.0 and Decimal("40.00").
    return all(name in context and exact(context[name]) == exact(value) for name, value in members.items())


def _listing(items: Sequence[object]) -> str:
    return "".join(f"\n  {each!r}" for each in items) or " none"
