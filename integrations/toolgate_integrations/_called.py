"""Which call of which run a tool is carried out for, where a framework tells it nothing but its very input."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from toolgate import ApprovalPending
from toolgate_integrations._base import text_or_none
from toolgate_integrations._once import Once
from toolgate_integrations._paused import HeldCall, Paused
from toolgate_integrations._telling import shown

__all__ = ["Called", "CallsOfRun", "PausingRun", "called_now"]

T = TypeVar("T")


class CallsOfRun:
    """The calls of one run.

    Args:
        interrupted: Makes what is raised for a call that was left by no mere exception.
        run_id: The run's name; None makes one.

    Attributes:
        run_id: The run's name.
        made: The calls that the framework may carry out now.
        held: The calls that wait, by id.
        once: Carries out each once.
        setup_error: Why no decision could be requested; the run raises it, since the framework does not.

    Raises:
        ConfigurationError: The name is no text.
    """

    def __init__(self, interrupted: Callable[[], Exception], run_id: str | None = None) -> None:
        text_or_none(run_id, "run_id")
        self.run_id = uuid4().hex if run_id is None else run_id
        self.made: Callable[[], Iterable[Called]] = tuple
        self.held: dict[str, HeldCall] = {}
        self.once = Once(interrupted)
        self.setup_error: Exception | None = None
        with _lock:
            _all.add(self)

    def state(self, messages: list[Any], after: list[Any], results: Mapping[str, Any]) -> dict[str, Any]:
        """What the run is gone on with from, while calls wait.

        Args:
            messages: The conversation, to the message that made the calls.
            after: What was added to it meanwhile.
            results: What became of its calls, by their ids, as the framework says it.
        """
        over = [each for call_id, each in results.items() if call_id not in self.held]
        return Paused(self.run_id, messages, after, over, list(self.held.values())).written()


@dataclass(frozen=True, slots=True)
class Called:
    """One call, or a tool that is run on its own.

    Attributes:
        name: The tool.
        input: What the model gave it: the very object that the tool is given.
        call_id: The model's id of the call; None outside of any run.
        run: The run's calls; None outside of any run.
    """

    name: str
    input: Any = field(repr=False)
    call_id: str | None = None
    run: CallsOfRun | None = None

    @property
    def run_id(self) -> str | None:
        """The run's name."""
        return None if self.run is None else self.run.run_id

    def hold(self, pending: ApprovalPending) -> None:
        """The call waits, if there is a run that can."""
        if self.run is not None and self.call_id is not None:
            held = HeldCall(self.call_id, self.name, dict(self.input), **shown(pending))
            self.run.held[self.call_id] = held

    def once(self, carry_out: Callable[[], T]) -> T:
        """Carry out the call, or tell again what became of it."""
        if self.run is None or self.call_id is None:
            return carry_out()
        return self.run.once.run(self.call_id, carry_out)

    async def aonce(self, carry_out: Callable[[], Awaitable[T]]) -> T:
        """As `once`."""
        if self.run is None or self.call_id is None:
            return await carry_out()
        return await self.run.once.arun(self.call_id, carry_out)


class PausingRun:
    """A run that pauses while calls of it wait.

    Args:
        calls: Its calls.
        state: What it goes on from; None if it is not paused.

    Attributes:
        state: What a paused run goes on from, as JSON has it; None while it is not paused.
    """

    def __init__(self, calls: CallsOfRun, state: Mapping[str, Any] | None) -> None:
        self.state: dict[str, Any] | None = None if state is None else dict(state)
        self._calls = calls

    @property
    def run_id(self) -> str:
        """The run's name; the same after a pause."""
        return self._calls.run_id

    @property
    def held(self) -> tuple[HeldCall, ...]:
        """The calls that wait for a person, once the run is paused."""
        return () if self.state is None else tuple(HeldCall(**each) for each in self.state["held"])


def called_now(tool: str, given: object) -> Called:
    """The call that a tool is carried out for.

    Args:
        tool: Its name.
        given: Its input.
    """
    with _lock:
        runs = list(_all)
    for run in runs:
        for called in run.made():
            # Equal inputs may be of two calls.
            if called.input is given:
                return called
    return Called(tool, given)


# As long as there are runs to ask for them.
_all: weakref.WeakSet[CallsOfRun] = weakref.WeakSet()
_lock = threading.Lock()
