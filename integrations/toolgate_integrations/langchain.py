"""Plugin for LangChain and LangGraph: `create_agent(…, middleware=[GuardMiddleware()])`.

For a graph without an agent: `ToolNode(tools, wrap_tool_call=g.wrap_tool_call, awrap_tool_call=g.awrap_tool_call)`,
where `g` is a `GuardMiddleware`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from toolgate import ApprovalPending, ConfigurationError, GatewayUnavailable, Guard, GuardError
from toolgate._drivers import adrive, drive
from toolgate._effects import Invoke, Steps
from toolgate_integrations._arguments import encoded, with_signature_defaults
from toolgate_integrations._calls import PausedCall, invoke
from toolgate_integrations._calls import find_rejection as rejection_in
from toolgate_integrations._json_schema import with_defaults
from toolgate_integrations._options import OnHold
from toolgate_integrations._registry import is_at_least
from toolgate_integrations.base import (
    ArgumentSchema,
    Bridge,
    CustomSchema,
    InvalidArgumentsError,
    RawSchema,
    ToolActions,
    ToolCall,
    require,
)

require("langchain")

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, interrupt
from pydantic import BaseModel, create_model

__all__ = ["GuardMiddleware"]

_MAX_DEPTH: Final = 8


def find_rejection(answers: Sequence[object], call_id: str | None) -> str | None:
    """Return the reason in the first answer that rejects the call, or None if no answer rejects it.

    Answers can only reject a call, because only the gateway can approve it. A rejection with a `tool_call_id` applies
    to that call; any other rejection applies to every call of the task. `answers` are the values with which the run
    was resumed.
    """
    for answer in _flatten(answers):
        named = answer.get("tool_call_id") if isinstance(answer, Mapping) else None
        if named in (None, call_id) and (why := rejection_in(answer)) is not None:
            return why
    return None


def _flatten(answers: object, depth: int = 0) -> Iterator[object]:
    """Yield the single answers of nested lists and of `{"decisions": […]}`."""
    inner = answers.get("decisions") if isinstance(answers, Mapping) else answers
    if isinstance(inner, list | tuple) and depth < _MAX_DEPTH:
        for each in inner:
            yield from _flatten(each, depth + 1)
    else:
        yield answers


# Names of parameters that LangChain fills in itself, so the model does not send them.
_OWN: Final = frozenset(("run_manager", "callbacks", "config"))


def schema_of(tool: object, function: object) -> ArgumentSchema:
    """Return the schema with which LangChain validates the arguments of `tool`, which runs `function`."""
    if not isinstance(tool, BaseTool):
        return RawSchema()
    schema = tool.args_schema
    if isinstance(schema, dict):
        return _of_json_schema(tool, schema, function)
    injected = _injected(tool)
    model = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None
    probe = tool
    if model is not None and injected & model.model_fields.keys():
        # Injected arguments are made optional, because LangGraph adds them only right before the tool runs.
        absent: Any = dict.fromkeys(injected & model.model_fields.keys(), (Any, None))
        probe = tool.model_copy(
            update={"args_schema": create_model(model.__name__, __base__=model, **absent)}
        )

    def receive(sent: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in sent.items() if name not in injected}
        parsed: Any = probe._parse_input(given, "call") if given or model is not None else given  # noqa: SLF001 - LangChain validates arguments only in this method
        found = {name: value for name, value in dict(parsed).items() if name not in injected}
        return with_signature_defaults(found, function, injected | _OWN)

    def encode(received: Mapping[str, Any]) -> dict[str, Any]:
        return dict(received) if model is None else encoded(model, received)

    return CustomSchema(receive, encode)


def _of_json_schema(tool: BaseTool, schema: dict[str, Any], function: object) -> ArgumentSchema:
    injected = _injected(tool)

    def receive(sent: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in sent.items() if name not in injected}
        return with_signature_defaults(with_defaults(given, schema), function, injected | _OWN | {"runtime"})

    return CustomSchema(receive)


def _injected(tool: BaseTool) -> frozenset[str]:
    """Return the names of the parameters that the framework fills in and the model does not see."""
    # Tools of older versions of langchain-core have no such attribute: they declare such parameters in their schema.
    names = frozenset(getattr(tool, "_injected_args_keys", ()))
    if isinstance(tool.args_schema, dict):
        return names
    everything = set(getattr(tool.get_input_schema(), "model_fields", ()))
    shown: Any = tool.tool_call_schema
    asked = set(getattr(shown, "model_fields", ()))
    return names | frozenset(everything - asked) if asked or not everything else names


# Private keys of LangGraph's configuration. A rejection must be read before the check, and LangGraph has no public
# way to read an answer without consuming it.
_SCRATCHPAD: Final = "__pregel_scratchpad"
_CHECKPOINTER: Final = "__pregel_checkpointer"
_SENT: Final = "__pregel_push"


class Turn:
    """State of one execution of a LangGraph task, which all tool calls in the task share.

    A plain `ToolNode` runs several calls in one task. LangGraph pauses a task as a whole, and executes all of it
    again on resume. So in one execution of the task, either tools run or the task pauses. Otherwise, a tool could run
    twice, or a user's answer could reach the wrong call.

    Attributes:
        settling: Lock that a thread holds while it checks whether the task must pause.
        asettling: The same lock for coroutines.
        settled: True if all calls were checked, and none of them requires an approval.
        is_resumable: True if a checkpointer stores the run, so that it can be resumed after a pause.
    """

    def __init__(self, answers: Sequence[object], *, is_resumable: bool) -> None:
        self.is_resumable = is_resumable
        self.settling = threading.Lock()
        self.asettling = asyncio.Lock()
        self.settled = False
        self._answers = answers
        self._taken = False
        self._lock = threading.Lock()
        self._ran: set[str | None] = set()
        self._pause: GraphBubbleUp | None = None

    def find_rejection(self, call_id: str | None) -> str | None:
        """Return the user's reason if an answer rejects the call, or None."""
        return find_rejection(self._answers, call_id)

    @property
    def answered(self) -> bool:
        """True if the run was resumed with answers that no interrupt has consumed yet."""
        return bool(self._answers) and not self._taken

    def take_answers(self) -> None:
        """Consume the answers to the guard's interrupts; otherwise, an interrupt in the tool would receive them."""
        with self._lock, suppress(GraphBubbleUp):
            if not self._taken:
                self._taken = True
                for _ in self._answers:
                    interrupt(None)

    def raise_pause_again(self) -> None:
        """Raise the interrupt again if another call has already paused the task, so that no further tool runs."""
        if self._pause is not None:
            raise type(self._pause)(*self._pause.args)

    @contextmanager
    def running(self, call_id: str | None) -> Iterator[None]:
        """Mark that a tool has run in this execution of the task, so that the task no longer pauses.

        The mark is removed if the tool raises `ApprovalPending`. If another call has already paused the task, its
        interrupt is raised.
        """
        with self._lock:
            self.raise_pause_again()
            self._ran.add(call_id)
        try:
            yield
        except ApprovalPending:
            with self._lock:
                self._ran.discard(call_id)
            raise

    def pause(self, shown: Mapping[str, Any]) -> None:
        """Pause the task with `shown` as the interrupt's value; if a tool has already run in the task, only return.

        Raises:
            GraphBubbleUp: The task pauses.
        """
        with self._lock:
            self.raise_pause_again()
            if self._ran:
                return
            try:
                while True:
                    # While the run has answers from earlier resumptions, `interrupt` returns one of them at each call.
                    # The loop skips these answers, until `interrupt` raises to pause the task.
                    interrupt(dict(shown))
            except GraphBubbleUp as pause:
                self._pause = pause
                raise


def turn_of(config: Mapping[str, Any]) -> Turn | None:
    """Return the state of the task execution to which a LangGraph config belongs, or None outside of a graph."""
    configurable = config.get("configurable") or {}
    scratchpad: Any = configurable.get(_SCRATCHPAD)
    try:
        said, key = list(scratchpad.resume), scratchpad.get_null_resume
        bare = key(False)
    except AttributeError:
        return None
    with _lock:
        turn = _turns.get(key)
        if turn is None:
            if bare is not None and find_rejection([bare], None) is not None:
                # The rejection is consumed here; otherwise it would also reach the next call that requires an
                # approval.
                key(True)
            turn = _turns[key] = Turn(
                [*said, *([] if bare is None else [bare])], is_resumable=bool(configurable.get(_CHECKPOINTER))
            )
    return turn


def calls_beside(called: Mapping[str, Any], state: object, config: Mapping[str, Any]) -> list[Any]:
    """Return all tool calls in the task that executes `called`, in the order in which the model made them."""
    path = (config.get("metadata") or {}).get("langgraph_path") or ("",)
    if path[0] == _SENT:
        return [called]
    for messages in _lists(state):
        for message in reversed(messages):
            if isinstance(message, AIMessage) and any(
                one["id"] == called["id"] for one in message.tool_calls
            ):
                return list(message.tool_calls)
    return [called]


def _lists(state: object) -> list[list[Any]]:
    if isinstance(state, list):
        return [state]
    fields = state if isinstance(state, Mapping) else getattr(state, "__dict__", {})
    return [value for value in fields.values() if isinstance(value, list)]


_turns: WeakKeyDictionary[Any, Turn] = WeakKeyDictionary()
_lock: Final = threading.Lock()
if TYPE_CHECKING:
    from langchain.agents.middleware import ToolCallRequest

    Answer = ToolMessage | Command[Any]
logger = logging.getLogger("toolgate")


class GuardMiddleware(AgentMiddleware[Any, Any]):
    """Middleware that checks and logs every tool call of an agent.

    Its methods `wrap_tool_call` and `awrap_tool_call` do the same for a `ToolNode` without an agent.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by the names given to `create_agent(name=…)`; needs langchain 1.2.4. All other
            agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the run pauses with an interrupt. `wait`: wait
            for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`: the model
            reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "pause",
        hold_timeout: float | None = None,
    ) -> None:
        super().__init__()
        if agents is not None and not is_at_least("langchain", _MIN_AGENT_NAMES):
            raise ConfigurationError(
                f"agents= needs langchain {_MIN_AGENT_NAMES} or later, which passes the agent's name with a "
                f"call; pip install 'langchain>={_MIN_AGENT_NAMES}', or give each agent its own guard"
            )
        self._bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True)
        self._has_verified = False
        self._has_warned = False

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]
    ) -> Answer:
        """Check the call, run the tool if the call is allowed, and log the outcome; else the model reads the reason."""
        return drive(self._guarded(request, handler, coroutine=False))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        """Asynchronous form of `wrap_tool_call`."""
        return await adrive(self._guarded(request, handler, coroutine=True))

    def _guarded(self, request: ToolCallRequest, handler: Any, *, coroutine: bool) -> Steps[Answer]:
        self._verify(request)
        try:
            call, turn = self._call(request, coroutine=coroutine), turn_of(request.runtime.config)
        except InvalidArgumentsError:
            # The arguments are invalid. The framework validates them again with a tool that never runs, so that the
            # model reads the framework's own error message.
            refused: Answer = yield from invoke(lambda: handler(_refusing(request)))
            return refused
        if turn is not None and (why := turn.find_rejection(request.tool_call["id"])) is not None:
            return _message(request, (yield from self._bridge.reject_steps(call, why)))
        can_pause = turn is not None and self._bridge.on_hold == "pause"
        try:
            if turn is not None and can_pause:
                yield from self._settle(turn, request, coroutine=coroutine)
            run = partial(self._run, call, turn, request, handler)
            return (yield from self._bridge.run_steps(call, run, _failed, self._pauses))
        except ApprovalPending as pending:
            if turn is None or not can_pause:
                return _message(request, self._bridge.refusal(pending))
            self._pause(turn, _shown(request.tool_call, pending))
            yield from self._bridge.reject_steps(call, _BESIDE, pending.approval_id, final=False)
            return _message(request, _BESIDE)
        except GuardError as error:
            if can_pause and turn is not None and turn.answered and isinstance(error, GatewayUnavailable):
                raise  # The state stored by LangGraph still contains the call, so the run can be resumed again.
            return _message(request, self._bridge.refusal(error))

    def _run(
        self,
        call: ToolCall,
        turn: Turn | None,
        request: ToolCallRequest,
        handler: Any,
        arguments: dict[str, Any],
    ) -> Steps[Answer]:
        with nullcontext() if turn is None else turn.running(request.tool_call["id"]):
            if turn is not None and turn.answered:
                try:
                    is_used = (yield from self._bridge.preview_steps(call)).blocked
                except GuardError:
                    is_used = True
                if is_used:
                    turn.take_answers()
            called = {**request.tool_call, "args": call.to_send(arguments)}
            approved = request.override(tool_call=cast("Any", called))
            answer: Answer = yield from invoke(lambda: handler(approved))
            return answer

    @property
    def _pauses(self) -> tuple[type[BaseException], ...]:
        return (GraphBubbleUp, ApprovalPending) if self._bridge.on_hold == "pause" else (GraphBubbleUp,)

    def _verify(self, request: ToolCallRequest) -> None:
        """Compare the keys of `tool_actions` with the names of the agent's tools, at the first tool call only."""
        tools = getattr(request.runtime, "tools", None)
        if tools and not self._has_verified:
            self._bridge.verify_tools(tool.name for tool in tools)
            self._has_verified = True

    def _pause(self, turn: Turn, shown: Mapping[str, Any]) -> None:
        """Pause the task; if the run cannot be resumed, log a warning once."""
        if not turn.is_resumable and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the call of %r needs approval and pauses the run, but the run has no checkpointer and "
                "cannot be resumed; pass checkpointer=… to create_agent or compile, or use on_hold='wait'",
                shown["name"],
            )
        turn.pause(shown)

    def _settle(self, turn: Turn, request: ToolCallRequest, *, coroutine: bool) -> Steps[None]:
        """Pause the task if any of its calls requires an approval; this is checked once, for all calls of the task."""
        beside = calls_beside(request.tool_call, request.state, request.runtime.config)
        if len(beside) == 1:
            return
        yield Invoke(turn.settling.acquire, turn.asettling.acquire)
        try:
            turn.raise_pause_again()
            if turn.settled:
                return
            calls: list[tuple[Mapping[str, Any], PausedCall]] = []
            for called in beside:
                if turn.find_rejection(called["id"]) is None:
                    with suppress(InvalidArgumentsError):
                        calls.append((called, PausedCall(self._call(request, called, coroutine=coroutine))))
            found = yield from self._bridge.settle_steps(each for _, each in calls)
            shown = zip(calls, found, strict=True)
            waiting = [_shown(called, pending) for (called, _), pending in shown if pending is not None]
            if waiting:
                self._pause(turn, {**waiting[0], "others": waiting[1:]})
            turn.settled = True
        finally:
            (turn.asettling if coroutine else turn.settling).release()

    def _call(
        self, request: ToolCallRequest, called: Mapping[str, Any] | None = None, *, coroutine: bool = False
    ) -> ToolCall:
        """Return the `ToolCall` for the request, or for `called`, another call of the same task."""
        tool, config = request.tool, request.runtime.config
        if called is not None and called["name"] != request.tool_call["name"]:
            known = getattr(request.runtime, "tools", None) or ()
            tool = next((one for one in known if one.name == called["name"]), None)
        called = called or request.tool_call
        run_id = (config.get("configurable") or {}).get("thread_id")
        function = _function(tool, coroutine=coroutine)
        thread = None if run_id is None else str(run_id)
        received = self._bridge.received.of(
            called["name"], called["args"], schema_of(tool, function), thread, called["id"]
        )
        is_named = thread is not None and self._bridge.sends_id(function, can_pause=True)
        return ToolCall(
            called["name"],
            received.values,
            call_id=called["id"] if is_named else None,
            run_id=thread,
            agent=(config.get("metadata") or {}).get("lc_agent_name"),
            function=function,
            received=received,
        )


def _function(tool: object, *, coroutine: bool) -> object:
    """Return the function that a tool will run: its synchronous or asynchronous function, or a method of its class."""
    plain, other = getattr(tool, "func", None), getattr(tool, "coroutine", None)
    if plain is None and other is None and isinstance(tool, BaseTool):
        return tool._arun if coroutine and type(tool)._arun is not BaseTool._arun else tool._run  # noqa: SLF001 - tool classes of LangChain override these methods
    return (other or plain) if coroutine else (plain or other)


def _refusing(request: ToolCallRequest) -> ToolCallRequest:
    """Return the request with a copy of its tool that validates arguments like the original and never runs."""
    tool = request.tool
    if not isinstance(tool, StructuredTool):
        return request

    def refuse(*_args: Any, **_arguments: Any) -> Any:
        raise ConfigurationError(
            f"the tool {tool.name!r} rejected its arguments in the first validation and accepted them in "
            "the second; it did not run"
        )

    async def arefuse(*_args: Any, **_arguments: Any) -> Any:
        refuse()

    return request.override(tool=tool.model_copy(update={"func": refuse, "coroutine": arefuse}))


def _failed(answer: Answer) -> str | None:
    return str(answer.content) if isinstance(answer, ToolMessage) and answer.status == "error" else None


def _message(request: ToolCallRequest, text: str) -> ToolMessage:
    called = request.tool_call
    return ToolMessage(text, name=called["name"], tool_call_id=called["id"], status="error")


def _shown(called: Mapping[str, Any], pending: ApprovalPending) -> dict[str, Any]:
    return {
        "type": "tool_approval",
        "tool_call_id": called["id"],
        "name": called["name"],
        "args": called["args"],
        "description": pending.reason,
        "approval_id": pending.approval_id,
    }


# The first version of LangChain in which a run contains the name of its agent.
_MIN_AGENT_NAMES: Final = "1.2.4"
_BESIDE: Final = "Not done: the call needs a person's approval, and other calls of this message have already run. Call the tool again, alone."
