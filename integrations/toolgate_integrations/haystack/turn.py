"""Runs of a framework that has a name for none of them: known by an object that each has, and lasts as long as it does."""

from __future__ import annotations

import asyncio
import copy
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

from toolgate import ApprovalPending, GuardError
from toolgate_integrations.base import Begun, Bridge, ToolCall

__all__ = ["Run", "Runs"]


class Unwrapping:
    """Restores the tool's own error for the log: use `inside` next to the tool, and `outside` around the log entry.

    Args:
        wrapper: What the framework makes of a tool's error, with that as its cause.
    """

    def __init__(self, wrapper: type[Exception]) -> None:
        self.inside = _Inside(wrapper)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Raise the framework's error again; a refusal is raised unchanged.

        Raises:
            Exception: What the framework made of the tool's error.
        """
        try:
            yield
        except GuardError:
            raise
        except Exception as error:
            if self.inside.wrapped is None:
                raise
            raise self.inside.wrapped from error


class _Inside:
    """Raises the tool's own error."""

    def __init__(self, wrapper: type[Exception]) -> None:
        self._wrapper = wrapper
        self.wrapped: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, self._wrapper) and error.__cause__ is not None:
            self.wrapped = error
            raise error.__cause__


T = TypeVar("T")
# What a guarded function inside a tool raises to be called again.
_PAUSES: Final = (ApprovalPending,)


class NotRunError(Exception):
    """The framework's error message for a tool that did not run."""


@dataclass(eq=False)
class Made:
    """One call of a turn.

    Attributes:
        asked: As the gateway hears of it.
        own: As the framework has it.
        begun: What was let through; None if it was not.
        refused: Why it did not run.
        told: What the model reads then.
        approved: A copy of its arguments, which no other part of the framework can reach.
        claimed: Whether its tool has begun, or it is recorded that it never did.
    """

    asked: ToolCall
    own: Any
    begun: Begun | None = None
    refused: GuardError | None = None
    told: str = ""
    approved: dict[str, Any] = field(default_factory=dict, repr=False)
    claimed: bool = False

    def begin(self, bridge: Bridge) -> None:
        """Ask about the call; a function that is guarded itself asks once it is run."""
        with self._refusing(bridge):
            self.begun = bridge.begin(self.asked, _PAUSES)

    async def abegin(self, bridge: Bridge) -> None:
        """Asynchronous form of `begin`."""
        with self._refusing(bridge):
            self.begun = await bridge.abegin(self.asked, _PAUSES)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The approved arguments; the model's own before the approval."""
        return self.asked.arguments if self.begun is None else self.begun.arguments

    def close(self) -> None:
        """Keep what was approved."""
        self.approved = copy.deepcopy(dict(self.arguments))

    def fits(self, name: str, given: Mapping[str, Any]) -> bool:
        """Return whether a starting tool may belong to this call; it may receive additional arguments."""
        same = all(key in given and given[key] == value for key, value in self.approved.items())
        return same and name == self.asked.name

    def run(self, bridge: Bridge, tool: Callable[[], T], wrapper: type[Exception]) -> T:
        """Run the tool of a call that was let through, and record what comes of it.

        Args:
            bridge: Asked about the call.
            tool: Runs it.
            wrapper: What the framework makes of a tool's own error, with that as its cause.

        Raises:
            GuardError: A function that is guarded itself was refused.
        """
        errors = Unwrapping(wrapper)

        def run() -> T:
            with errors.inside:
                return tool()

        with errors.outside(), self._refusing(bridge, raises=True):
            return self._let_through().run(run)

    async def arun(self, bridge: Bridge, tool: Callable[[], Awaitable[T]], wrapper: type[Exception]) -> T:
        """Asynchronous form of `run`."""
        errors = Unwrapping(wrapper)

        async def run() -> T:
            with errors.inside:
                return await tool()

        with errors.outside(), self._refusing(bridge, raises=True):
            return await self._let_through().arun(run)

    def _let_through(self) -> Begun:
        if self.begun is None:
            raise NotRunError("the call was not let through")
        return self.begun

    def end(self, why: str | None) -> None:
        """Record what came of the call, where its tool was not seen to begin.

        Args:
            why: What went wrong; None if nothing did.
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


#: what a framework is about to run: the names of tools, and what they are given
Left: TypeAlias = Iterable[tuple[str, Mapping[str, Any]]]


class Turn:
    """The calls of one turn of the model, until all of them are logged.

    Args:
        bridge: Asks about them.
        made: The calls; after `close` those that the framework is to run.
        wrapper: What the framework makes of a tool's own error, with that as its cause.
    """

    def __init__(self, bridge: Bridge, made: Iterable[Made], wrapper: type[Exception]) -> None:
        self.made = list(made)
        self._bridge, self._wrapper = bridge, wrapper
        self._left: Callable[[], Left] = list
        self._changed: bool | None = None
        self._lock = threading.Lock()

    def ask(self) -> None:
        """Ask about all calls.

        Raises:
            Exception: What is no refusal; nothing may run.
        """
        with self._all_or_none():
            if self._bridge.on_hold == "wait" and len(self.made) > 1:
                # All of them can be decided while the first is waited for.
                for each in self.made:
                    with suppress(GuardError):
                        self._bridge.find_pending(each.asked)
            for each in self.made:
                each.begin(self._bridge)

    async def aask(self) -> None:
        """Asynchronous form of `ask`."""
        with self._all_or_none():
            ends = await asyncio.gather(
                *(each.abegin(self._bridge) for each in self.made), return_exceptions=True
            )
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
        """All calls are asked about; from now on tools may begin.

        Args:
            left: What the framework is about to run; looked at when the first tool begins.

        Returns:
            The calls that were refused; they are no part of the turn any more.
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
        """Run a tool for the call that it begins for.

        Args:
            name: The tool's.
            given: What it is given.
            tool: Runs it.
            error: Makes what is raised in its place of what the model is to read.

        Raises:
            Exception: The tool's own, as the framework makes it; or the tool must not run.
        """
        with self._claimed(name, given, error) as made:
            return made.run(self._bridge, tool, self._wrapper)

    async def arun(
        self,
        name: str,
        given: Mapping[str, Any],
        tool: Callable[[], Awaitable[T]],
        error: Callable[[str], Exception],
    ) -> T:
        """Asynchronous form of `run`."""
        with self._claimed(name, given, error) as made:
            return await made.arun(self._bridge, tool, self._wrapper)

    @contextmanager
    def _claimed(
        self, name: str, given: Mapping[str, Any], error: Callable[[str], Exception]
    ) -> Iterator[Made]:
        made = self._claim(name, given)
        if made is None:
            raise error(_CHANGED)
        try:
            yield made
        except GuardError as refused:
            raise error(made.told) from refused

    def _claim(self, name: str, given: Mapping[str, Any]) -> Made | None:
        """Return the call for which a tool starts, or None if the tool must not run."""
        with self._lock:
            if self._changed is None:
                # Before the first tool runs: from then on what is left is the tools' to change.
                self._changed = self._differs()
            for each in () if self._changed else self.made:
                if not each.claimed and each.fits(name, given):
                    each.claimed = True
                    return each
        return None

    def _differs(self) -> bool:
        """Return whether the framework is about to run other calls than those that were checked.

        A tool may be given more than the call's arguments, so an argument that was added is not seen there.
        """
        approved = [(each.asked.name, each.approved) for each in self.made]
        for one in self._left():
            if one not in approved:
                return True
            approved.remove(one)
        return False

    def end(self, results: Iterable[tuple[object, str | None]] = ()) -> list[Made]:
        """Record what came of the calls whose tools were not seen to begin.

        Args:
            results: Calls as the framework has them, and what it says went wrong with each, if anything did.

        Returns:
            The calls that came to wait while their tools ran: those of functions that are guarded themselves.
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
        run_id: A name for it; no other run has it.
        turn: The calls that are under way.
        asker: What asked about them.
    """

    run_id: str = field(default_factory=lambda: uuid4().hex)
    turn: Turn | None = None
    asker: Any = None


class Runs:
    """The current runs, by the framework's object of each run."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[weakref.ref[object], Run]] = {}
        self._lock = threading.Lock()

    def of(self, held: object) -> Run:
        """The run that an object is of. Those that ended in the middle of a turn are recorded to their end.

        Args:
            held: The object; it is not kept alive.
        """
        with self._lock:
            gone = [key for key, (kept, _) in self._runs.items() if kept() is None]
            ended = [self._runs.pop(key)[1] for key in gone]
            # With the object itself: an id is another's as soon as its object is gone.
            _, run = self._runs.setdefault(id(held), (weakref.ref(held), Run()))
        for each in ended:
            if each.turn is not None:
                each.turn.end()
        return run

    def begin(self, held: object, turn: Turn, asker: object) -> None:
        """A turn of a run is under way.

        Args:
            held: The run's object.
            turn: The turn.
            asker: What asked about its calls.
        """
        run = self.of(held)
        run.turn, run.asker = turn, asker

    def end(self, held: object) -> tuple[Turn | None, Any]:
        """End the current turn of a run, and return it with the hook that checked it."""
        run = self.of(held)
        turn, run.turn = run.turn, None
        return turn, run.asker
