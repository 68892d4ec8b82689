"""LangChain and LangGraph: `create_agent(…, middleware=[GuardMiddleware()])`.

For a plain graph: `ToolNode(tools, wrap_tool_call=g.wrap_tool_call, awrap_tool_call=g.awrap_tool_call)`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from toolgate import (
    ApprovalPending,
    ConfigurationError,
    GatewayUnavailable,
    Guard,
    GuardError,
    is_guarded,
)
from toolgate_integrations._arguments import InvalidArgumentsError
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, require, valid_on_hold
from toolgate_integrations._frameworks import is_at_least
from toolgate_integrations._telling import refusal_or_raise

require("langchain")

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from toolgate_integrations._langchain_arguments import schema_of
from toolgate_integrations._langchain_turns import Turn, calls_beside, turn_of

if TYPE_CHECKING:
    from langchain.agents.middleware import ToolCallRequest

    Answer = ToolMessage | Command[Any]

__all__ = ["GuardMiddleware"]

logger = logging.getLogger("toolgate")

OnHold = Literal["interrupt", "wait", "tell"]


class GuardMiddleware(AgentMiddleware[Any, Any]):
    """Guards every tool call of an agent, or of a `ToolNode` by its two methods.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the names given to `create_agent(name=…)`; needs langchain 1.2.4.
        on_hold: What a held call does: `interrupt` pauses the run, `wait` waits for the person, `tell` lets the
            model read that it waits.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "interrupt",
    ) -> None:
        super().__init__()
        valid_on_hold(on_hold, "interrupt")
        if agents is not None and not is_at_least("langchain", _NAMES_AGENTS):
            raise ConfigurationError(
                f"agents is given, and langchain before {_NAMES_AGENTS} does not tell which agent makes a call; "
                f"pip install 'langchain>={_NAMES_AGENTS}', or give each agent a guard of its own"
            )
        self._bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
        self._has_verified = False
        self._has_warned = False

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]
    ) -> Answer:
        """Ask, let the tool run, record; what is refused is told to the model."""
        self._verify(request)
        try:
            call, turn = self._call(request), turn_of(request.runtime.config)
        except InvalidArgumentsError:
            # The framework's own error reaches the model.
            return handler(_refusing(request))
        if turn is not None and (why := turn.why_not(request.tool_call["id"])) is not None:
            self._bridge.reject(call, why)
            return _message(request, _REJECTED.format(why).strip())

        def run(arguments: dict[str, Any]) -> Answer:
            with _running(turn, request):
                if turn is not None and turn.answered and self._bridge.passed(call):
                    turn.take_answers()
                return handler(_with(request, call.to_send(arguments)))

        try:
            if turn is not None and self._bridge.on_hold == "interrupt":
                self._settle(turn, request)
            return self._bridge.run(call, run, _failed, self._pauses)
        except ApprovalPending as pending:
            if turn is None or self._bridge.on_hold != "interrupt":
                return _refusal(request, pending)
            self._pause(turn, _shown(request.tool_call, pending))
            self._bridge.reject(call, _BESIDE, pending.approval_id, final=False)
            return _message(request, _BESIDE)
        except GuardError as error:
            return _refusal(request, error)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        """As `wrap_tool_call`."""
        self._verify(request)
        try:
            call, turn = self._call(request, coroutine=True), turn_of(request.runtime.config)
        except InvalidArgumentsError:
            # The framework's own error reaches the model.
            return await handler(_refusing(request))
        if turn is not None and (why := turn.why_not(request.tool_call["id"])) is not None:
            await self._bridge.areject(call, why)
            return _message(request, _REJECTED.format(why).strip())

        async def run(arguments: dict[str, Any]) -> Answer:
            with _running(turn, request):
                if turn is not None and turn.answered and await self._bridge.apassed(call):
                    turn.take_answers()
                return await handler(_with(request, call.to_send(arguments)))

        try:
            if turn is not None and self._bridge.on_hold == "interrupt":
                await self._asettle(turn, request)
            return await self._bridge.arun(call, run, _failed, self._pauses)
        except ApprovalPending as pending:
            if turn is None or self._bridge.on_hold != "interrupt":
                return _refusal(request, pending)
            self._pause(turn, _shown(request.tool_call, pending))
            await self._bridge.areject(call, _BESIDE, pending.approval_id, final=False)
            return _message(request, _BESIDE)
        except GuardError as error:
            return _refusal(request, error)

    @property
    def _pauses(self) -> tuple[type[BaseException], ...]:
        return (GraphBubbleUp, ApprovalPending) if self._bridge.on_hold == "interrupt" else (GraphBubbleUp,)

    def _verify(self, request: ToolCallRequest) -> None:
        """Compare `tool_actions` with the tools of the node, at its first call."""
        tools = getattr(request.runtime, "tools", None)
        if tools and not self._has_verified:
            self._bridge.verify_tools(tool.name for tool in tools)
            self._has_verified = True

    def _pause(self, turn: Turn, shown: Mapping[str, Any]) -> None:
        """As `Turn.pause`, with a warning where the run cannot be resumed."""
        if not turn.is_resumable and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the call of %r is held and pauses the run, which has no checkpointer and cannot be resumed; pass "
                "checkpointer=… to create_agent or compile, or use on_hold='wait'",
                shown["name"],
            )
        turn.pause(shown)

    def _settle(self, turn: Turn, request: ToolCallRequest) -> None:
        """Pause the task while any call in it waits for a person; the first hook finds out for all."""
        beside = calls_beside(request.tool_call, request.state, request.runtime.config)
        if len(beside) == 1:
            return
        with turn.settling:
            turn.go_on()
            if turn.settled:
                return
            waiting: list[dict[str, Any]] = []
            with suppress(GatewayUnavailable):
                for called in beside:
                    if turn.why_not(called["id"]) is None:
                        with suppress(InvalidArgumentsError):
                            pending = self._bridge.waiting(self._call(request, called))
                            waiting += [] if pending is None else [_shown(called, pending)]
            if waiting:
                self._pause(turn, {**waiting[0], "others": waiting[1:]})
            turn.settled = True

    async def _asettle(self, turn: Turn, request: ToolCallRequest) -> None:
        beside = calls_beside(request.tool_call, request.state, request.runtime.config)
        if len(beside) == 1:
            return
        async with turn.asettling:
            turn.go_on()
            if turn.settled:
                return
            waiting: list[dict[str, Any]] = []
            with suppress(GatewayUnavailable):
                for called in beside:
                    if turn.why_not(called["id"]) is None:
                        with suppress(InvalidArgumentsError):
                            call = self._call(request, called, coroutine=True)
                            pending = await self._bridge.awaiting(call)
                            waiting += [] if pending is None else [_shown(called, pending)]
            if waiting:
                self._pause(turn, {**waiting[0], "others": waiting[1:]})
            turn.settled = True

    def _call(
        self, request: ToolCallRequest, called: Mapping[str, Any] | None = None, *, coroutine: bool = False
    ) -> ToolCall:
        """The request's own call, or another one of its task."""
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
        return ToolCall(
            called["name"],
            received.values,
            call_id=called["id"] if self._comes_again(run_id, function) else None,
            run_id=thread,
            agent=(config.get("metadata") or {}).get("lc_agent_name"),
            function=function,
            received=received,
        )

    def _comes_again(self, run_id: object, function: object) -> bool:
        # A model that was told asks again by another id: bound to this one, its approval would be of no use to it.
        own = is_guarded(function)
        return run_id is not None and (
            self._bridge.on_hold == "interrupt" or (self._bridge.on_hold == "wait" and not own)
        )


def _function(tool: object, *, coroutine: bool) -> object:
    """The function that will be called: a tool has one, or two, or is a class with methods."""
    plain, other = getattr(tool, "func", None), getattr(tool, "coroutine", None)
    if plain is None and other is None and isinstance(tool, BaseTool):
        return tool._arun if coroutine and type(tool)._arun is not BaseTool._arun else tool._run  # noqa: SLF001 - the names under which LangChain has them overridden
    return (other or plain) if coroutine else (plain or other)


def _refusing(request: ToolCallRequest) -> ToolCallRequest:
    """The request with a tool that validates as before and never runs."""
    tool = request.tool
    if not isinstance(tool, StructuredTool):
        return request

    def refuse(*_args: Any, **_arguments: Any) -> Any:
        raise ConfigurationError(
            f"the tool {tool.name!r} first refused its arguments and then took them: it did not run"
        )

    async def arefuse(*_args: Any, **_arguments: Any) -> Any:
        refuse()

    return request.override(tool=tool.model_copy(update={"func": refuse, "coroutine": arefuse}))


@contextmanager
def _running(turn: Turn | None, request: ToolCallRequest) -> Iterator[None]:
    with nullcontext() if turn is None else turn.running(request.tool_call["id"]):
        yield


def _with(request: ToolCallRequest, arguments: dict[str, Any]) -> ToolCallRequest:
    return request.override(tool_call={**request.tool_call, "args": arguments})


def _failed(answer: Answer) -> str | None:
    failed = isinstance(answer, ToolMessage) and answer.status == "error"
    return str(answer.content) if failed and isinstance(answer, ToolMessage) else None


def _refusal(request: ToolCallRequest, error: GuardError) -> ToolMessage:
    return _message(request, refusal_or_raise(error))


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


# The first whose runs bear the name of their agent.
_NAMES_AGENTS: Final = "1.2.4"
_REJECTED: Final = "Not done: it was rejected. {}"
_BESIDE: Final = (
    "Not done: it needs a person, and other calls have already run beside it. Ask for it again, alone."
)
