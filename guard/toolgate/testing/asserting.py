"""Assertions about what a gateway was asked and told."""

from __future__ import annotations

from abc import ABC, abstractmethod

from toolgate.testing.seen import Checked, Logged, holds, listed

__all__ = ["Assertions"]


class Assertions(ABC):
    """Says in a test's words what should have happened, and shows what did."""

    @property
    @abstractmethod
    def checks(self) -> list[Checked]:
        """The checks it answered, in order."""

    @property
    @abstractmethod
    def entries(self) -> list[Logged]:
        """The log entries it took, in order."""

    def assert_checked(self, action: str, **context: object) -> Checked:
        """Demand a check of `action` with these members in its context, and return the last one.

        Raises:
            AssertionError: There was none; the message lists what there was.
        """
        __tracebackhide__ = True
        checks = self.checks
        found = [one for one in checks if one.action == action and holds(one.context, context)]
        if not found:
            raise AssertionError(f"no check of {action!r} with {context!r}; checked were:{listed(checks)}")
        return found[-1]

    def assert_not_checked(self, action: str | None = None) -> None:
        """Demand that `action`, or anything at all, was never checked.

        Raises:
            AssertionError: It was.
        """
        __tracebackhide__ = True
        found = [one for one in self.checks if action in {None, one.action}]
        if found:
            raise AssertionError(f"checked, and should not have been:{listed(found)}")

    def assert_logged(self, action: str, status: str, **context: object) -> Logged:
        """Demand a log entry of `action` with `status` and these members in its context; returns the last one.

        Raises:
            AssertionError: There was none; the message lists what there was.
        """
        __tracebackhide__ = True
        entries = self.entries
        found = [
            one
            for one in entries
            if (one.action, one.status) == (action, status) and holds(one.context, context)
        ]
        if not found:
            raise AssertionError(
                f"no entry {status!r} of {action!r} with {context!r}; logged were:{listed(entries)}"
            )
        return found[-1]
