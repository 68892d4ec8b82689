"""LangChain and LangGraph: `create_agent(…, middleware=[GuardMiddleware()])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, require
from toolgate_integrations.refusals import refusal_text

require("langchain")

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, interrupt

if TYPE_CHECKING:
    Answer = ToolMessage | Command[Any]

__all__ = ["GuardMiddleware"]

OnHold = Literal["interrupt", "wait", "tell"]
_PAUSES: Final = (GraphBubbleUp,)
# LangGraph has no public way to see an answer without taking it, and a no must be seen before the gateway is asked.
_SCRATCHPAD: Final = "__pregel_scratchpad"


class GuardMiddleware(AgentMiddleware[Any, Any]):
    """Guards every tool call of an agent, or of a `ToolNode` by its two methods.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the names given to `create_agent(name=…)`.
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
        if on_hold not in ("interrupt", "wait", "tell"):
            raise ConfigurationError(f"on_hold is {on_hold!r}; use 'interrupt', 'wait' or 'tell'")
        self._pauses = on_hold == "interrupt"
        self._bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]
    ) -> Answer:
        """Ask, let the tool run, record; what is refused is told to the model."""
        call = _call(request)
        for answer in _answers():
            if (why := _rejected(answer)) is not None:
                self._bridge.reject(call, why)
                return _message(request, f"Not done: it was rejected. {why}".strip())
        while True:
            try:
                return self._bridge.run(
                    call, lambda arguments: handler(_with(request, arguments)), _failed, _PAUSES
                )
            except ApprovalPending as pending:
                if not self._pauses:
                    return _refusal(request, pending)
                interrupt(_shown(request, pending))
            except GuardError as error:
                return _refusal(request, error)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        """As `wrap_tool_call`."""
        call = _call(request)
        for answer in _answers():
            if (why := _rejected(answer)) is not None:
                await self._bridge.areject(call, why)
                return _message(request, f"Not done: it was rejected. {why}".strip())
        while True:
            try:
                return await self._bridge.arun(
                    call, lambda arguments: handler(_with(request, arguments)), _failed, _PAUSES
                )
            except ApprovalPending as pending:
                if not self._pauses:
                    return _refusal(request, pending)
                interrupt(_shown(request, pending))
            except GuardError as error:
                return _refusal(request, error)


def _call(request: ToolCallRequest) -> ToolCall:
    called, config = request.tool_call, request.runtime.config
    configurable, metadata = config.get("configurable") or {}, config.get("metadata") or {}
    return ToolCall(
        called["name"],
        called["args"],
        call_id=called["id"],
        run_id=configurable.get("thread_id"),
        agent=metadata.get("lc_agent_name"),
        function=_function(request.tool),
    )


def _function(tool: object) -> object:
    return getattr(tool, "func", None) or getattr(tool, "coroutine", None)


def _with(request: ToolCallRequest, arguments: dict[str, Any]) -> ToolCallRequest:
    return request.override(tool_call={**request.tool_call, "args": arguments})


def _failed(answer: Answer) -> str | None:
    failed = isinstance(answer, ToolMessage) and answer.status == "error"
    return str(answer.content) if failed and isinstance(answer, ToolMessage) else None


def _refusal(request: ToolCallRequest, error: GuardError) -> ToolMessage:
    return _message(request, refusal_text(error))


def _message(request: ToolCallRequest, text: str) -> ToolMessage:
    called = request.tool_call
    return ToolMessage(text, name=called["name"], tool_call_id=called["id"], status="error")


def _answers() -> list[Any]:
    """What the run has been resumed with for this task so far; looked at before the gateway is asked."""
    scratchpad = (get_config().get("configurable") or {}).get(_SCRATCHPAD)
    if scratchpad is None:
        return []
    bare = scratchpad.get_null_resume(False)
    return [*scratchpad.resume, *([] if bare is None else [bare])]


def _rejected(answer: object) -> str | None:
    """Why, if an answer is a no in LangChain's own form."""
    if not isinstance(answer, Mapping) or answer.get("type") != "reject":
        return None
    return str(answer.get("message") or "")


def _shown(request: ToolCallRequest, pending: ApprovalPending) -> dict[str, Any]:
    called = request.tool_call
    return {
        "type": "tool_approval",
        "tool_call_id": called["id"],
        "name": called["name"],
        "args": called["args"],
        "description": pending.reason,
        "approval_id": pending.approval_id,
    }
