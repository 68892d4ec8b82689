"""Runs and turns of Haystack, which has no run ids: a run is identified by its `State` object."""

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
# A guarded function inside a tool raises this exception if it is to be called again later.
_PAUSES: Final = (ApprovalPending,)


class NotRunError(Exception):
    """The framework's error message for a tool that did not run."""


@dataclass(eq=False)
class Made:
    """One call of a turn.

    Attributes:
        asked: The call in the form in which the gateway checks it.
        own: The framework's object for the call.
        begun: The call after an allowing decision; None if it must not run.
        refused: Error because of which the call did not run, or None.
        told: Text that the model reads if the call did not run.
        approved: Private copy of the approved arguments, which no other part of the agent can change.
        claimed: True once the tool has started, or `Turn.end` has logged the call.
    """

    asked: ToolCall
    own: Any
    begun: Begun | None = None
    refused: GuardError | None = None
    told: str = ""
    approved: dict[str, Any] = field(default_factory=dict, repr=False)
    claimed: bool = False

    def begin(self, bridge: Bridge) -> Steps[None]:
        """Operation that checks the call; a function that is itself guarded checks it when it runs."""
        with self._refusing(bridge):
            self.begun = yield from bridge.begin_steps(self.asked, _PAUSES)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The approved arguments; before the approval, the arguments of the model."""
        return self.asked.arguments if self.begun is None else self.begun.arguments

    def close(self) -> None:
        """Store a copy of the approved arguments."""
        self.approved = copy.deepcopy(dict(self.arguments))

    def fits(self, name: str, given: Mapping[str, Any]) -> bool:
        """Return whether a tool that starts with the arguments `given` may belong to this call.

        The tool may receive additional arguments from the framework.
        """
        same = all(key in given and given[key] == value for key, value in self.approved.items())
        return same and name == self.asked.name

    def run(self, bridge: Bridge, tool: Callable[[], Any], wrapper: type[Exception]) -> Steps[Any]:
        """Operation that runs the tool of an allowed call, and logs the outcome.

        The log entry contains the tool's own error, and the framework's error is raised.

        Args:
            bridge: The bridge that checked the call.
            tool: Function that runs the tool.
            wrapper: Class of the framework's error, whose cause is the tool's own error.

        Raises:
            GuardError: The function is itself guarded, and did not run.
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
                raise error.__cause__  # noqa: B904 - it keeps its own cause

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
        """Log the outcome that the framework reports, for a call whose tool was not seen to start.

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


#: Calls that the framework is about to run: tool names and arguments.
Left: TypeAlias = Iterable[tuple[str, Mapping[str, Any]]]


class Turn:
    """The calls of one turn of the model, until all of them are logged.

    Args:
        bridge: The bridge that checks the calls.
        made: The calls; after `close`, only those that the framework may run.
        wrapper: Class of the framework's error, whose cause is the tool's own error.
    """

    def __init__(self, bridge: Bridge, made: Iterable[Made], wrapper: type[Exception]) -> None:
        self.made = list(made)
        self._bridge, self._wrapper = bridge, wrapper
        self._left: Callable[[], Left] = list
        self._changed: bool | None = None
        self._lock = threading.Lock()

    def ask(self) -> None:
        """Check all calls.

        Raises:
            Exception: An error that must end the run occurred; none of the calls may run.
        """
        with self._all_or_none():
            if self._bridge.on_hold == "wait" and len(self.made) > 1:
                # Creates all approval requests first, so that approvers can decide all of them at the same time.
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

    def close(self, left: Callable[[], Left]) -> list[Made]:
        """Remove the calls that must not run, and return them; tools may start after this.

        Args:
            left: Function that returns the calls that the framework is about to run; called when the first tool starts.
        """
        refused = [each for each in self.made if each.refused is not None]
        self.made = [each for each in self.made if each.refused is None]
        for each in self.made:
            each.close()
        self._left = left
        return refused

    def run(
        self, name: str, given: Mapping[str, Any], tool: Callable[[], T], error: Callable[[str], Exception]
    ) -> T:
        """Run a tool that the framework starts, for the allowed call with this name and these arguments.

        Args:
            name: Name of the tool.
            given: Arguments that the framework passes to the tool.
            tool: Function that runs the tool.
            error: Function that returns the exception to raise for a message to the model.

        Raises:
            Exception: The tool failed (the framework's exception), or must not run (the exception from `error`).
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
        """Return the call for which a tool starts, or None if the tool must not run."""
        with self._lock:
            if self._changed is None:
                # Compared only before the first tool runs, because running tools may change the remaining calls.
                self._changed = self._differs()
            for each in () if self._changed else self.made:
                if not each.claimed and each.fits(name, given):
                    each.claimed = True
                    return each
        return None

    def _differs(self) -> bool:
        """Return whether the framework is about to run other calls than those that were checked.

        This comparison is needed because `Made.fits` accepts additional arguments, and would miss an added one.
        """
        approved = [(each.asked.name, each.approved) for each in self.made]
        for one in self._left():
            if one not in approved:
                return True
            approved.remove(one)
        return False

    def end(self, results: Iterable[tuple[object, str | None]] = ()) -> list[Made]:
        """Log the outcomes of the calls whose tools were not seen to start.

        Args:
            results: The framework's objects of the calls, each with its error message, or None for a success.

        Returns:
            The calls whose functions are themselves guarded, and required an approval when they ran.
        """
        said = list(results)
        for each in self.made:
            if not each.claimed:
                each.claimed = True
                each.end(next((why for own, why in said if own is each.own), _ENDED))
        return [each for each in self.made if isinstance(each.refused, ApprovalPending)]


_CHANGED: Final = (
    "Not done: another part of the agent changed the call after it was approved. Asking again will not help; "
    "tell the operator."
)
_ENDED: Final = "the run ended before the tool was called"


@dataclass(eq=False)
class Run:
    """State of one run.

    Attributes:
        run_id: Unique id of the run.
        turn: The turn whose calls are running, or None.
        asker: The hook that checked the calls of the turn.
    """

    run_id: str = field(default_factory=lambda: uuid4().hex)
    turn: Turn | None = None
    asker: Any = None


class Runs:
    """The current runs, each identified by the framework's object of the run."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[weakref.ref[object], Run]] = {}
        self._lock = threading.Lock()

    def of(self, held: object) -> Run:
        """Return the run that the object `held` identifies; a new run is created for an unknown object.

        The object is not kept alive. For runs whose object is gone in the middle of a turn, the remaining calls are
        logged.
        """
        with self._lock:
            gone = [key for key, (kept, _) in self._runs.items() if kept() is None]
            ended = [self._runs.pop(key)[1] for key in gone]
            # The value contains a reference to the object, because another object may get the same id() later.
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
        """End the current turn of a run, and return it with the hook that checked it."""
        run = self.of(held)
        turn, run.turn = run.turn, None
        return turn, run.asker
