"""State of running Haystack agents: each run is identified by its `State` object, because Haystack has no run ids.

A turn is the set of tool calls that one response of the model contains.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

from toolgate import ApprovalPending, GuardError
from toolgate._drivers import adrive, drive
from toolgate._effects import Steps
from toolgate_integrations._calls import PausedCall, invoke
from toolgate_integrations.base import Begun, Bridge, ToolCall

__all__ = ["Run", "Runs"]


T = TypeVar("T")
# A guarded function inside a tool raises this exception if the call is pending, and is called again later. The call is
# therefore not logged as failed.
_PAUSES: Final = (ApprovalPending,)


class NotRunError(Exception):
    """Error for the log entry of a tool that did not run; it contains the framework's message."""


@dataclass(eq=False)
class Made:
    """One tool call of a model response, with its check and its outcome.

    Attributes:
        asked: The `ToolCall` that the gateway checks.
        own: The framework's object for the call.
        begun: The allowed call; None if it must not run.
        refused: Error because of which the call did not run, or None.
        told: Text that the model reads if the call did not run.
        approved: Private copy of the approved arguments, which no other part of the agent can change.
        claimed: True after the tool has started, or after `Turn.end` has logged the call.
    """

    asked: ToolCall
    own: Any
    begun: Begun | None = None
    refused: GuardError | None = None
    told: str = ""
    approved: dict[str, Any] = field(default_factory=dict, repr=False)
    claimed: bool = False

    def begin(self, bridge: Bridge) -> Steps[None]:
        """Generator that checks the call, and stores the allowed call or the refusal.

        If the tool's function is decorated with `@guarded`, the call is not checked here, but when the function runs.
        """
        with self._refusing(bridge):
            self.begun = yield from bridge.begin_steps(self.asked, _PAUSES)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The approved arguments; before the call is allowed, the model's arguments."""
        return self.asked.arguments if self.begun is None else self.begun.arguments

    def store_approved_arguments(self) -> None:
        """Store a private copy of the approved arguments, which `can_start` compares when the tool starts."""
        self.approved = copy.deepcopy(dict(self.arguments))

    def can_start(self, name: str, given: Mapping[str, Any]) -> bool:
        """Return whether this call may be the one for which the tool `name` starts with the arguments `given`.

        All approved arguments must be equal; additional arguments are accepted, because the framework may add some.
        """
        same = all(key in given and given[key] == value for key, value in self.approved.items())
        return same and name == self.asked.name

    def run(self, bridge: Bridge, tool: Callable[[], Any], wrapper: type[Exception]) -> Steps[Any]:
        """Generator that runs the tool of an allowed call, and logs the outcome.

        If the tool fails, the log entry contains the tool's own exception. The caller receives the framework's
        exception, in which it is wrapped.

        Args:
            bridge: The bridge that checked the call.
            tool: Function that runs the tool.
            wrapper: Class of the exception in which the framework wraps a tool's own exception, as its cause.

        Raises:
            GuardError: The tool's function is decorated with `@guarded`, and did not run.
        """
        if self.begun is None:
            raise NotRunError("the call was not allowed")
        wrapped: list[Exception] = []

        def unwrapped() -> Steps[Any]:
            try:
                return (yield from invoke(tool))
            except wrapper as error:
                if error.__cause__ is None:
                    raise
                wrapped.append(error)
                raise error.__cause__  # noqa: B904 - the error keeps its own cause

        try:
            with self._refusing(bridge, raises=True):
                return (yield from self.begun.steps(unwrapped()))
        except GuardError:
            raise
        except Exception as error:
            if wrapped:
                raise wrapped[0] from error
            raise

    def end(self, why: str | None) -> None:
        """Log the outcome that the framework reports for a call; used if the framework did not run the guarded tool.

        Args:
            why: Error message; None if the framework reports success.
        """
        if self.begun is None or self.begun.asks_itself:
            return
        if why is None:
            self.begun.run(lambda: None)
        else:
            self.begun.not_run(NotRunError(why))

    @contextmanager
    def _refusing(self, bridge: Bridge, *, raises: bool = False) -> Iterator[None]:
        try:
            yield
        except GuardError as error:
            self.refused, self.told = error, bridge.refusal(error, paused=self.asked.call_id is not None)
            if raises:
                raise


#: Type for name and arguments of each call that the framework is about to run.
Left: TypeAlias = Iterable[tuple[str, Mapping[str, Any]]]


class Turn:
    """Handler of the tool calls in one model response: checks them, runs their tools, and logs their outcomes.

    Args:
        bridge: The bridge that checks the calls.
        made: The calls in the response; `remove_refused_calls` removes those that must not run.
        wrapper: Class of the exception in which the framework wraps a tool's own exception, as its cause.
    """

    def __init__(self, bridge: Bridge, made: Iterable[Made], wrapper: type[Exception]) -> None:
        self.made = list(made)
        self._bridge, self._wrapper = bridge, wrapper
        self._left: Callable[[], Left] = list
        self._changed: bool | None = None
        self._lock = threading.Lock()

    def ask(self) -> None:
        """Check all calls of the turn.

        Raises:
            Exception: The check of a call failed with an error that must end the run; none of the calls may run.
        """
        with self._all_or_none():
            if self._bridge.on_hold == "wait" and len(self.made) > 1:
                # All approval requests are created first, so that approvers can decide about all calls at the same
                # time.
                drive(self._bridge.settle_steps(PausedCall(each.asked) for each in self.made))
            for each in self.made:
                drive(each.begin(self._bridge))

    async def aask(self) -> None:
        """Asynchronous form of `ask`."""
        with self._all_or_none():
            begins = (adrive(each.begin(self._bridge)) for each in self.made)
            ends = await asyncio.gather(*begins, return_exceptions=True)
            for error in ends:
                if error is not None:
                    raise error

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.end()
            raise

    def remove_refused_calls(self, left: Callable[[], Left]) -> list[Made]:
        """Remove the calls that must not run, and return them; afterwards, the framework may run the other calls.

        Args:
            left: Function that returns the calls that the framework is about to run; it is called when the first tool
                starts.
        """
        refused = [each for each in self.made if each.refused is not None]
        self.made = [each for each in self.made if each.refused is None]
        for each in self.made:
            each.store_approved_arguments()
        self._left = left
        return refused

    def run(
        self, name: str, given: Mapping[str, Any], tool: Callable[[], T], error: Callable[[str], Exception]
    ) -> T:
        """Run the tool that the framework starts, if one of the allowed calls has its name and arguments.

        Args:
            name: Name of the tool.
            given: Arguments that the framework passes to the tool.
            tool: Function that runs the tool.
            error: Function that converts a message for the model to the exception to raise.

        Raises:
            Exception: The tool failed (the exception is the framework's), or must not run (the exception is the result
                of `error`).
        """
        result: T = drive(self._steps(name, given, tool, error))
        return result

    async def arun(
        self,
        name: str,
        given: Mapping[str, Any],
        tool: Callable[[], Awaitable[T]],
        error: Callable[[str], Exception],
    ) -> T:
        """Asynchronous form of `run`."""
        result: T = await adrive(self._steps(name, given, tool, error))
        return result

    def _steps(
        self, name: str, given: Mapping[str, Any], tool: Callable[[], Any], error: Callable[[str], Exception]
    ) -> Steps[Any]:
        made = self._claim(name, given)
        if made is None:
            raise error(_CHANGED)
        try:
            return (yield from made.run(self._bridge, tool, self._wrapper))
        except GuardError as refused:
            raise error(made.told) from refused

    def _claim(self, name: str, given: Mapping[str, Any]) -> Made | None:
        """Find the allowed call for which the framework starts a tool, and mark it as started; None if no call fits."""
        with self._lock:
            if self._changed is None:
                # The calls are compared only before the first tool runs, because running tools may change the
                # remaining calls.
                self._changed = self._differs()
            for each in () if self._changed else self.made:
                if not each.claimed and each.can_start(name, given):
                    each.claimed = True
                    return each
        return None

    def _differs(self) -> bool:
        """Return whether the framework is about to run other calls than those that were checked.

        This comparison detects added arguments, which `Made.can_start` accepts.
        """
        approved = [(each.asked.name, each.approved) for each in self.made]
        for one in self._left():
            if one not in approved:
                return True
            approved.remove(one)
        return False

    def end(self, results: Iterable[tuple[object, str | None]] = ()) -> list[Made]:
        """Log the outcomes of the allowed calls for which the framework did not run the guarded tool.

        Args:
            results: The framework's call objects, each with the error message of the call, or None if it succeeded.

        Returns:
            The calls whose functions are decorated with `@guarded`, and required an approval when they ran.
        """
        said = list(results)
        for each in self.made:
            if not each.claimed:
                each.claimed = True
                each.end(next((why for own, why in said if own is each.own), _ENDED))
        return [each for each in self.made if isinstance(each.refused, ApprovalPending)]


_CHANGED: Final = (
    "Not done: another part of the agent changed the call after it was approved. Calling the tool again "
    "will not help; "
    "tell the operator."
)
_ENDED: Final = "the run ended before the tool was called"


@dataclass(eq=False)
class Run:
    """State of one run of a Haystack agent.

    Attributes:
        run_id: Unique id of the run.
        turn: The turn whose calls are running; None between two turns.
        asker: The hook that checked the calls of the turn.
    """

    run_id: str = field(default_factory=lambda: uuid4().hex)
    turn: Turn | None = None
    asker: Any = None


class Runs:
    """The current runs; each one is identified by the `State` object that the framework created for it."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[weakref.ref[object], Run]] = {}
        self._lock = threading.Lock()

    def of(self, held: object) -> Run:
        """Return the run that the object `held` identifies; for an unknown object, a new run is created.

        Only a weak reference to the object is stored. If the object of another run was deleted in the middle of a
        turn, that run has ended, and its remaining calls are logged.
        """
        with self._lock:
            gone = [key for key, (kept, _) in self._runs.items() if kept() is None]
            ended = [self._runs.pop(key)[1] for key in gone]
            # The value refers to the object, so that a new object with the same id() is not mistaken for it.
            _, run = self._runs.setdefault(id(held), (weakref.ref(held), Run()))
        for each in ended:
            if each.turn is not None:
                each.turn.end()
        return run

    def begin(self, held: object, turn: Turn, asker: object) -> None:
        """Set the current turn of the run that `held` identifies, and the hook `asker` that checked its calls."""
        run = self.of(held)
        run.turn, run.asker = turn, asker

    def end(self, held: object) -> tuple[Turn | None, Any]:
        """End the current turn of the run that `held` identifies; return the turn and the hook that checked its calls."""
        run = self.of(held)
        turn, run.turn = run.turn, None
        return turn, run.asker
