"""Runs of the Anthropic SDK's tool runners, which can pause for pending calls and be resumed later."""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeVar
from uuid import uuid4

from anthropic.lib.tools import (
    BetaAsyncStreamingToolRunner,
    BetaAsyncToolRunner,
    BetaStreamingToolRunner,
    BetaToolRunner,
    ToolError,
)

from toolgate import ApprovalPending, ConfigurationError
from toolgate._drivers import adrive, drive
from toolgate._effects import Steps
from toolgate_integrations._calls import RunOnce, invoke
from toolgate_integrations._options import text_or_none, valid_rejections
from toolgate_integrations.base import Bridge, ToolCall, describe_pending, find_error

__all__ = ["AsyncGuardedRun", "Called", "GuardedRun", "HeldCall", "PausedRun", "Resumption", "find_called"]

T = TypeVar("T")
logger = logging.getLogger("toolgate")

_NO_STATE: Final = "state is not valid; pass the value of the attribute state of a paused guarded run"
_INTERRUPTED: Final = "The call was interrupted and may have run in part. It does not run again."


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A tool call that requires an approval.

    Attributes:
        call_id: The model's id of the call.
        name: The tool's name.
        input: The model's arguments.
        approval_id: Id of the approval request.
        action: The action that the gateway checked.
        reason: The gateway's reason why the call requires an approval.
    """

    call_id: str
    name: str
    input: dict[str, Any] = field(repr=False)
    approval_id: str
    action: str
    reason: str | None


@dataclass
class PausedRun:
    """State of a paused run, from which the run can be resumed.

    Attributes:
        run_id: The run's id.
        messages: The conversation, up to and including the model's message with the pending calls.
        after: Further messages that the program added to the conversation after those in `messages`.
        results: Results of those calls in the last message that are not pending.
        held: The pending calls.
    """

    run_id: str
    messages: list[Any]
    after: list[Any]
    results: list[Any]
    held: list[HeldCall]

    @classmethod
    def read(cls, state: Mapping[str, Any], call_ids: Callable[[Any], Collection[str]]) -> PausedRun:
        """Read a state that `asdict` has written.

        Args:
            state: The state.
            call_ids: Function that returns the ids of the tool calls in a message.

        Raises:
            ConfigurationError: `state` is not the state of a paused run, or its last message does not contain the
                pending calls.
        """
        try:
            lists = {name: list(state[name]) for name in ("messages", "after", "results")}
            paused = cls(run_id=state["run_id"], held=[HeldCall(**each) for each in state["held"]], **lists)
            ids = {each.call_id for each in paused.held}
            fits = 0 < len(ids) == len(paused.held) and ids <= set(call_ids(paused.messages[-1]))
        except (TypeError, KeyError, IndexError) as error:
            raise ConfigurationError(_NO_STATE) from error
        if not fits:
            raise ConfigurationError(_NO_STATE)
        return paused


class CallsOfRun:
    """The tool calls of one run; each call runs only once, even if the runner executes it again.

    Args:
        run_id: The run's id; None for a new run.

    Attributes:
        run_id: The run's id.
        current: Function that returns the calls that the runner may be executing now.
        held: The pending calls by id.
        setup_error: Error that must end the run. The run raises it later, because a runner shows the errors of tools
            to the model instead of raising them.

    Raises:
        ConfigurationError: `run_id` is not a text.
    """

    def __init__(self, run_id: str | None = None) -> None:
        text_or_none(run_id, "run_id")
        self.run_id = uuid4().hex if run_id is None else run_id
        self.current: Callable[[], Iterable[Called]] = tuple
        self.held: dict[str, HeldCall] = {}
        self.setup_error: Exception | None = None
        self._outcomes: dict[str, RunOnce] = {}
        with _lock:
            _runs.add(self)

    def state(self, messages: list[Any], after: list[Any], results: Mapping[str, Any]) -> dict[str, Any]:
        """Return the paused run's state as a dictionary; the arguments are attributes of `PausedRun`."""
        finished = [each for call_id, each in results.items() if call_id not in self.held]
        return asdict(PausedRun(self.run_id, messages, after, finished, list(self.held.values())))

    def once(self, call_id: str, tool: Callable[[], Any]) -> Steps[Any]:
        """Generator behind `Called.once`: runs `tool` at the first execution of a call, and stores the outcome."""
        once = self._outcomes.setdefault(call_id, RunOnce(ToolError(_INTERRUPTED)))
        return (yield from once.steps(invoke(tool)))


@dataclass(frozen=True, slots=True)
class Called:
    """One execution of a tool, by a guarded run or by another runner.

    Attributes:
        name: The tool's name.
        input: The object with the arguments, which the runner passed to the tool.
        call_id: The model's id of the call; None if another runner executes the tool.
        run: The calls of the guarded run; None if another runner executes the tool.
    """

    name: str
    input: Any = field(repr=False)
    call_id: str | None = None
    run: CallsOfRun | None = None

    @property
    def run_id(self) -> str | None:
        """The guarded run's id; None if another runner executes the tool."""
        return None if self.run is None else self.run.run_id

    def hold(self, pending: ApprovalPending) -> None:
        """Store the call as pending, so that its run pauses."""
        if self.run is not None and self.call_id is not None:
            held = HeldCall(self.call_id, self.name, dict(self.input), **describe_pending(pending))
            self.run.held[self.call_id] = held

    def once(self, tool: Callable[[], T]) -> T:
        """Run `tool` if this call is executed for the first time; afterwards, return or raise the stored outcome."""
        if self.run is None or self.call_id is None:
            return tool()
        result: T = drive(self.run.once(self.call_id, tool))
        return result

    async def aonce(self, tool: Callable[[], Awaitable[T]]) -> T:
        """Asynchronous form of `once`."""
        if self.run is None or self.call_id is None:
            return await tool()
        result: T = await adrive(self.run.once(self.call_id, tool))
        return result


def find_called(tool: str, given: object) -> Called:
    """Find the call by its input object `given`, because runners pass only the input to a tool, and no call id."""
    with _lock:
        runs = list(_runs)
    for run in runs:
        for called in run.current():
            # The input objects are compared by identity, because two calls may have equal inputs.
            if called.input is given:
                return called
    return Called(tool, given)


class _Run:
    """Base class of synchronous and asynchronous runs.

    Attributes:
        state: State of the paused run, as JSON; None while the run is not paused.
    """

    _runners: ClassVar[tuple[type, ...]]
    _client: ClassVar[str]

    def __init__(
        self, runner: Any, *, run_id: str | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        if state is None and not isinstance(runner, self._runners):
            raise ConfigurationError(
                f"runner is {runner!r}; pass the object that messages.tool_runner(…) of {self._client} returned"
            )
        self.state: dict[str, Any] | None = None if state is None else dict(state)
        self._calls = CallsOfRun(run_id)
        self._runner = runner
        self._item: Any = None
        self._last: Any = None

    @property
    def run_id(self) -> str:
        """The run's id, which stays the same after a pause."""
        return self._calls.run_id

    @property
    def held(self) -> tuple[HeldCall, ...]:
        """The calls that require an approval; empty unless the run is paused."""
        return () if self.state is None else tuple(HeldCall(**each) for each in self.state["held"])

    def _begin(self, item: Any) -> None:
        """Store the message or message stream that the runner yielded; its tool calls may be executed from now on."""
        self._item = item
        self._calls.current = lambda: _current_calls(self._calls, item)

    def _execute(self) -> Steps[bool]:
        """Generator that executes the tool calls of the last message; returns False if the run pauses, else True."""
        item = self._item
        if item is None:
            return True
        self._last = item
        if _is_stream(item):
            self._last = yield from invoke(item.get_final_message)
        results = None
        # The runner executes calls only for this stop reason, and not, for example, in a message that reached the
        # token limit.
        if self._last.stop_reason == "tool_use":
            # The runner stores the results of this method, so it does not execute the calls again.
            results = yield from invoke(self._runner.generate_tool_call_response)
        if self._calls.setup_error is not None:
            raise self._calls.setup_error
        if results is not None and self._calls.held:
            self.state = self._paused(results["content"])
            yield from invoke(self._runner.close)
            return False
        # The message is forgotten only after its calls were executed, so that an interrupted execution is repeated.
        self._item = None
        return True

    def _paused(self, results: Iterable[Any]) -> Any:
        params: dict[str, Any] = {}

        def read(given: Any) -> Any:
            params.update(given)
            return given

        # The runner passes its conversation only to a function that `set_messages_params` receives. The runner is
        # closed afterwards, so it sends no further requests.
        self._runner.set_messages_params(read)
        messages, last = to_json(params["messages"]), to_json(self._last.to_param())
        # `end` is the index of the model's last message, or of the end of the list if it does not contain this message
        # yet. The program that iterates the run may already have added this message and further ones to the
        # conversation.
        end = next(
            (at for at, each in enumerate(messages) if call_ids(each) == call_ids(last)), len(messages)
        )
        after = [_without_results(each) for each in messages[end + 1 :]]
        return to_json(self._calls.state([*messages[:end], last], after, index_by_call_id(results)))


class GuardedRun(_Run):
    """A run of a synchronous tool runner that can pause; iterating over it yields the same items as the runner.

    Args:
        runner: Result of `client.beta.messages.tool_runner(…)`, with tools of `guard_tools`.
        run_id: The run's id; None for a new run.
        state: State of a run that is still paused; such a run has no runner.

    Raises:
        ConfigurationError: `runner` is not a runner of a synchronous client.
    """

    _runners = (BetaToolRunner, BetaStreamingToolRunner)
    _client = "a client"

    def __iter__(self) -> Iterator[Any]:
        """Yield the messages or message streams of the runner until the run ends or pauses."""
        while self.state is None and drive(self._execute()):
            item = next(self._runner, None)
            if item is None:
                return
            self._begin(item)
            yield item

    def until_done(self) -> Any:
        """Continue until the run ends or pauses; return the model's last message, or None if the run is paused."""
        for _ in self:
            pass
        return None if self.state is not None else self._last


class AsyncGuardedRun(_Run):
    """A run of an asynchronous tool runner that can pause; the asynchronous form of `GuardedRun`.

    Args:
        runner: As for `GuardedRun`.
        run_id: As for `GuardedRun`.
        state: As for `GuardedRun`.

    Raises:
        ConfigurationError: `runner` is not a runner of an asynchronous client.
    """

    _runners = (BetaAsyncToolRunner, BetaAsyncStreamingToolRunner)
    _client = "an asynchronous client"

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield the messages or message streams of the runner until the run ends or pauses."""
        while self.state is None and await adrive(self._execute()):
            item = await anext(self._runner, None)
            if item is None:
                return
            self._begin(item)
            yield item

    async def until_done(self) -> Any:
        """Continue until the run ends or pauses; return the model's last message, or None if the run is paused."""
        async for _ in self:
            pass
        return None if self.state is not None else self._last


class GuardedTool(Protocol):
    """Interface of a guarded tool, with the members that `Resumption` uses."""

    @property
    def name(self) -> str:
        """The tool's name."""

    @property
    def bridge(self) -> Bridge:
        """The bridge that checks the calls of the tool."""

    def asked(self, called: Called) -> ToolCall:
        """Return the `ToolCall` that the gateway checks for this execution of the tool."""

    def call(self, input: Any) -> Any:  # noqa: A002 - the SDK's signature
        """Check a call and run the tool; an asynchronous tool returns an awaitable."""


class Resumption:
    """Resumption of a paused run: rejects its pending calls or checks them again, and builds the continued conversation.

    Args:
        paused: State of the run.
        calls: Object for the calls of the resumed run; it contains no calls yet.
        tools: The guarded tools.
        rejected: Reasons by call id for calls that must not run.

    Raises:
        ConfigurationError: A tool is missing, or a rejected call is not pending.
    """

    def __init__(
        self,
        paused: PausedRun,
        calls: CallsOfRun,
        tools: Iterable[GuardedTool],
        rejected: Mapping[str, str] | None,
    ) -> None:
        self.paused, self.calls = paused, calls
        self._rejected = valid_rejections(rejected, [each.call_id for each in paused.held])
        self._tools = {each.name: each for each in tools}
        if missing := [each.name for each in paused.held if each.name not in self._tools]:
            raise ConfigurationError(
                f"a call to the tool {missing[0]!r} waits for approval, but no guarded tool with this name "
                "was passed; pass the guarded tools of the paused run"
            )
        # The input objects are copied, because `find_called` identifies a call by its input object, and two threads may
        # resume the same state at the same time.
        self._held = [
            (Called(each.name, dict(each.input), each.call_id, calls), each.approval_id)
            for each in paused.held
        ]
        calls.current = lambda: [called for called, _ in self._held]
        self._results: dict[Any, Any] = {}

    def execute(self) -> Steps[None]:
        """Generator that rejects the rejected calls, and executes the other pending calls that are allowed by now."""
        for called, approval_id in self._held:
            tool = self._tools[called.name]
            if (why := self._rejected.get(called.call_id or "")) is not None:
                self.add_result(called, why, is_error=True)
                yield from tool.bridge.reject_steps(tool.asked(called), why, approval_id)
        for called, _ in self._held:
            if called.call_id not in self._rejected:
                with self._adding_error(called):
                    tool = self._tools[called.name]
                    result = yield from invoke(partial(tool.call, called.input))
                    self.add_result(called, result)

    def add_result(self, called: Called, content: Any, *, is_error: bool = False) -> None:
        """Store a call's result in the format of the SDK's runners; `conversation` adds it to the messages."""
        result = {"type": "tool_result", "tool_use_id": called.call_id, "content": content}
        self._results[called.call_id] = to_json({**result, "is_error": True} if is_error else result)

    def add_error(self, called: Called, error: Exception) -> None:
        """Store the exception that a call raised as the result of the call, so that the model reads it."""
        if isinstance(error, ToolError):
            self.add_result(called, error.content, is_error=True)
        else:
            logger.error("the tool %r failed", called.name, exc_info=error)
            self.add_result(called, repr(error), is_error=True)

    def state(self) -> Any:
        """Return the new state of the run as JSON if calls are still pending, else None."""
        results = {**index_by_call_id(self.paused.results), **self._results}
        paused = self.calls.state(self.paused.messages, self.paused.after, results)
        return to_json(paused) if self.calls.held else None

    def conversation(self) -> list[Any]:
        """Return the messages of the conversation, followed by the results of the last message's calls in their order."""
        results = {**index_by_call_id(self.paused.results), **self._results}
        messages, after = self.paused.messages, [each for each in self.paused.after if each["content"]]
        content = [results[each] for each in call_ids(messages[-1]) if each in results]
        return [*messages, {"role": "user", "content": content}, *after]

    @contextmanager
    def _adding_error(self, called: Called) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - any error is shown to the model, and the other calls still run
            fatal = self._tools[called.name].bridge.fatal
            if (found := find_error(error, fatal)) is not None:
                raise found from None
            # A call that is still pending gets no result: the run pauses again, and the model does not read this error.
            if called.call_id not in self.calls.held:
                self.add_error(called, error)


def index_by_call_id(results: Iterable[Any]) -> dict[Any, Any]:
    """Return a dictionary that maps the id of each tool call to its result."""
    return {each["tool_use_id"]: each for each in results}


def call_ids(message: Any) -> list[str]:
    """Return the ids of the tool calls in a message; the list is empty if the message is not from the model."""
    content = message["content"] if message["role"] == "assistant" else ""
    return [] if isinstance(content, str) else [each["id"] for each in content if each["type"] == "tool_use"]


def to_json(value: Any) -> Any:
    """Convert a value to JSON types; the SDK's models inside it are converted too."""
    return json.loads(json.dumps(value, default=_dump))


def _without_results(message: Any) -> Any:
    content = message["content"]
    if isinstance(content, str):
        return message
    return {**message, "content": [each for each in content if each["type"] != "tool_result"]}


def _is_stream(item: Any) -> bool:
    return hasattr(item, "get_final_message")


def _current_calls(calls: CallsOfRun, item: Any) -> list[Called]:
    """Return the tool calls of a message, or of the part that has been received if the message is still streamed."""
    try:
        message = item.current_message_snapshot if _is_stream(item) else item
    except AssertionError:
        # The SDK raises this error if no part of the streamed message has been received yet.
        return []
    uses = [each for each in getattr(message, "content", ()) if each.type == "tool_use"]
    # The runner passes this `input` object itself to the tool, so `find_called` can identify the call by it.
    return [Called(each.name, each.input, each.id, calls) for each in uses]


def _dump(model: Any) -> Any:
    excluded = getattr(model, "__api_exclude__", None)
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=excluded)


_runs: weakref.WeakSet[CallsOfRun] = weakref.WeakSet()
_lock = threading.Lock()
