"""The calls of one step of a Haystack agent: which may run, as what, and what came of them."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from uuid import uuid4

from haystack.components.agents.state import State
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool

from toolgate import ApprovalPending, GuardError, guarded_action
from toolgate_integrations import _base as base
from toolgate_integrations.refusals import refusal_text

__all__ = ["PAUSES", "Made", "Run", "Turn", "function_of", "run_of", "watched"]

#: what a guarded function inside a tool raises to be called again
PAUSES: Final = (ApprovalPending,)
_OTHERS: Final = (
    "Not done: another part of the agent changed the call after it was approved. Asking again will not help; "
    "tell the operator."
)


@dataclass
class Made:
    """One call of a step.

    Attributes:
        asked: As the gateway hears of it.
        tool_call: As the framework is to carry it out.
        approved: A copy of its arguments, which no other hook can reach; set by the turn.
        begun: What was let through; None if it was not, or if a function that is guarded itself asks.
        refused: Why it did not run.
        claimed: Whether its tool has begun.
    """

    asked: base.ToolCall
    tool_call: ToolCall
    begun: base.Begun | None = None
    refused: GuardError | None = None
    claimed: bool = False
    approved: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Turn:
    """The calls of one step that the framework is to run."""

    bridge: base.Bridge
    made: list[Made]
    _pending: Callable[[], list[ToolCall]] = field(default=list, repr=False)
    _changed: bool | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def close(self, state: State) -> None:
        """All calls are asked about: what the framework is to run is looked at again when the first tool begins."""
        for each in self.made:
            each.approved = copy.deepcopy(each.tool_call.arguments)
        # Weakly: it is by the state being gone that a run is known to have ended.
        found = weakref.ref(state)

        def pending() -> list[ToolCall]:
            messages = [] if (held := found()) is None else held.data.get("messages") or []
            return list(messages[-1].tool_calls) if messages else []

        self._pending = pending

    def claim(self, name: str, given: dict[str, Any]) -> Made:
        """The call a tool begins for: by its arguments, which are all that a tool is told of it.

        Raises:
            ToolInvocationError: There is none with these arguments that has not begun.
        """
        with self._lock:
            if self._changed is None:
                # Before the first tool runs: from then on the state is the tools'.
                self._changed = self._differs()
            for each in () if self._changed else self.made:
                if (
                    each.tool_call.tool_name == name
                    and not each.claimed
                    and all(key in given and given[key] == value for key, value in each.approved.items())
                ):
                    each.claimed = True
                    return each
        raise ToolInvocationError(_OTHERS, tool_name=name)

    def _differs(self) -> bool:
        """Whether the framework was left anything but calls that were asked about.

        A tool is given more than the call's arguments, so an argument that was added is not seen there.
        """
        left = [(each.tool_call.tool_name, each.approved) for each in self.made]
        for call in self._pending():
            if (call.tool_name, call.arguments) not in left:
                return True
            left.remove((call.tool_name, call.arguments))
        return False

    def end(self, results: Iterable[ChatMessage] = ()) -> None:
        """Record what came of the calls whose tools were not seen to begin."""
        answers = [each for one in results for each in one.tool_call_results]
        for each in self.made:
            if each.begun is None or each.claimed:
                continue
            each.claimed = True
            answer = next((one for one in answers if one.origin is each.tool_call), None)
            if answer is None:
                each.begun.not_run(NotRunError("the run ended before the tool was called"))
            elif answer.error:
                each.begun.not_run(NotRunError(str(answer.result)))
            else:
                each.begun.run(lambda: None)


class NotRunError(Exception):
    """What the framework says in place of a tool's own error."""


@dataclass
class Run:
    """What is known of one run of an agent.

    Attributes:
        run_id: Its name: the one it was given, or one of its own.
        turn: The calls that are under way.
        hook: What asked about them.
    """

    run_id: str = field(default_factory=lambda: uuid4().hex)
    turn: Turn | None = None
    hook: object = None


def run_of(state: State) -> Run:
    """The run that a state is of; those that ended in the middle of a step are tidied up after.

    One place for all hooks: an agent that was read from a file has others than the one that was written.
    """
    with _lock:
        gone = [key for key, (kept, _) in _runs.items() if kept() is None]
        ended = [_runs.pop(key)[1] for key in gone]
        # With the state itself: an id is another's as soon as its object is gone.
        _, run = _runs.setdefault(id(state), (weakref.ref(state), Run()))
    for each in ended:
        if each.turn is not None:
            each.turn.end()
    return run


def function_of(tool: Tool | None) -> object:
    """The Python function of a tool; None if it is not known.

    Of two, one that is not guarded itself: that one may be the one that is run.
    """
    found = (
        [] if tool is None else [each for each in (tool.function, tool.async_function) if each is not None]
    )
    return next((each for each in found if guarded_action(each) is None), found[0] if found else None)


def watched(tool: Tool, turn: Turn) -> Tool:
    """A copy of a tool that runs for the calls of a turn only, and records what comes of them."""

    def invoke(**given: Any) -> Any:
        made, inside = turn.claim(tool.name, given), _Inside()

        def run() -> Any:
            with inside:
                return tool.invoke(**given)

        try:
            if made.begun is None:
                return turn.bridge.run(made.asked, lambda _: run(), pauses=PAUSES)
            return made.begun.run(run)
        except Exception as error:  # noqa: BLE001 - whatever it is goes on
            _raise_told(made, inside, error)

    async def invoke_async(**given: Any) -> Any:
        made, inside = turn.claim(tool.name, given), _Inside()

        async def run(_: Any = None) -> Any:
            with inside:
                return await tool.invoke_async(**given)

        try:
            if made.begun is None:
                return await turn.bridge.arun(made.asked, run, pauses=PAUSES)
            return await made.begun.arun(run)
        except Exception as error:  # noqa: BLE001 - whatever it is goes on
            _raise_told(made, inside, error)

    copied = copy.copy(tool)
    methods: dict[str, Callable[..., Any]] = {"invoke": invoke, "invoke_async": invoke_async}
    vars(copied).update(methods)
    return copied


class _Inside:
    """Takes a tool's own error out of the framework's, so that the log tells of that one."""

    def __init__(self) -> None:
        self.wrapper: ToolInvocationError | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ToolInvocationError) and error.__cause__ is not None:
            self.wrapper = error
            raise error.__cause__


def _raise_told(made: Made, inside: _Inside, error: Exception) -> NoReturn:
    if isinstance(error, GuardError):
        made.refused = error
        raise ToolInvocationError(refusal_text(error), tool_name=made.tool_call.tool_name) from error
    if inside.wrapper is not None:
        raise inside.wrapper from error
    raise error


_runs: dict[int, tuple[weakref.ref[State], Run]] = {}
_lock = threading.Lock()
