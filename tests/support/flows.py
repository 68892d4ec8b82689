"""Drive a flow by hand: replies are scripted, and every effect is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolgate._call import Call, OnHold
from toolgate._capture.context import Captured
from toolgate._effects import Effect, Interrupted, RunTool, WriteEntry
from toolgate._flow import guarded_call
from toolgate._identity import Identity
from toolgate._process_state import PendingApproval, PendingApprovals
from toolgate.errors import GuardError

WHO = Identity("agent-1", "run-1")


class Arguments:
    """Arguments that become, one after the other, what a test says."""

    def __init__(self, *contexts: dict[str, Any]) -> None:
        self.contexts = list(contexts)
        self.given = contexts[0] if contexts else {}
        self.edited: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.edit_problem: str | None = None
        self.edit_result: dict[str, Any] | None = None
        self.changed: str | None = None

    def capture(self) -> Captured:
        if self.edited is not None:
            return Captured(self.edited[1] if self.edit_result is None else self.edit_result)
        return Captured(self.contexts.pop(0) if len(self.contexts) > 1 else self.contexts[0])

    def edit(self, asked: dict[str, Any], approved: dict[str, Any]) -> str | None:
        if self.edit_problem is None:
            self.edited = asked, approved
        return self.edit_problem

    def difference(self) -> str | None:
        return self.changed

    def discard_edit(self) -> None:
        self.edited = None
        self.contexts = [self.given]


class FlowRun:
    """One flow under test.

    Attributes:
        effect: The effect that waits for its reply; None at the end.
        entries: Log entries that were written.
    """

    def __init__(
        self,
        *,
        on_hold: OnHold = "raise",
        context: dict[str, Any] | None = None,
        arguments: Arguments | None = None,
        who: Identity = WHO,
        resumes: str | None = None,
        hold_timeout: float | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        **options: Any,
    ) -> None:
        given = {"n": 1} if context is None else context
        self.arguments = arguments or Arguments(given)
        self.call = Call(
            "a.b",
            who,
            self.arguments,
            Captured(given, hidden=("hunter22",)),
            PendingApproval(PendingApprovals()),
            clock,
            on_hold,
            hold_timeout,
            resumes,
            **options,
        )
        self.flow = guarded_call(self.call)
        self.entries: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.effect: Effect | None = None
        self.has_run = False
        self._advance(lambda: next(self.flow))

    def reply(self, value: object) -> Effect | None:
        """Send a reply and return the next effect that is not a log entry."""
        self._advance(lambda: self.flow.send(value))
        return self.effect

    def fail(self, error: BaseException) -> Effect | None:
        """Throw an error as the reply."""
        self._advance(lambda: self.flow.throw(error))
        return self.effect

    def interrupt(self) -> Effect | None:
        """Interrupt the flow and return the cleanup that it yields, or None."""
        try:
            return self.fail(Interrupted())
        except Interrupted:
            return None

    def refused(self, value: object, kind: type[GuardError]) -> Any:
        """Send a reply that ends the call and return its error; the tool has not run."""
        try:
            self.fail(value) if isinstance(value, BaseException) else self.reply(value)
        except kind as error:
            assert not self.has_run
            return error
        raise AssertionError(f"the call was not refused: {self.effect!r}")

    def _advance(self, step: Callable[[], Effect]) -> None:
        try:
            effect = step()
            while isinstance(effect, WriteEntry):
                self.entries.append(effect.entry.body)
                self.keys.append(effect.entry.key)
                effect = self.flow.send(None)
        except StopIteration:
            self.effect = None
            return
        self.has_run = self.has_run or isinstance(effect, RunTool)
        self.effect = effect
