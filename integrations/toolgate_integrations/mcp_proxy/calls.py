"""One tool call through the proxy: asked about, carried out by the server behind it, and recorded."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    RequestParamsMeta,
    TextContent,
)
from pydantic import TypeAdapter

from toolgate_integrations._base import ToolCall
from toolgate_integrations._mcp_asking import Round
from toolgate_integrations._mcp_calls import Calls, Refusal, Request, ToolAsksError
from toolgate_integrations._schema_defaults import SchemaDefaultError
from toolgate_integrations.mcp_proxy.backend import Backend
from toolgate_integrations.mcp_proxy.passing import own, passed_meta
from toolgate_integrations.mcp_proxy.tools import Tools
from toolgate_integrations.mcp_proxy.upward import Upward

__all__ = ["ToolCalls"]

_ANSWER: Final = TypeAdapter[CallToolResult | InputRequiredResult](CallToolResult | InputRequiredResult)
_SERVERS: Final = "server"


class _RefusedError(Exception):
    """The call may go on by the gateway's word, and not by the server's."""


class ToolCalls:
    """Carries out the client's tool calls.

    Args:
        calls: Who asks.
        tools: The server's tools.
        backend: The server.
        upward: What the server may ask of the client.
    """

    def __init__(self, calls: Calls, tools: Tools, backend: Backend, upward: Upward) -> None:
        self._calls, self._tools, self._backend, self._upward = calls, tools, backend, upward
        # States are this process's own, and so is the memory of those that were used.
        self._used: set[str] = set()

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Ask, let the server's tool run, record; what is refused is told to the model."""
        if (doubt := await self._tools.doubt(params.name)) is not None:
            turn = Round.of(params, self._calls.name or "")
            refused = await self._calls.withdrawn(
                self._call(params, turn.call_id if turn.asked else None), doubt
            )
            return _refusal(refused.text)
        try:
            # The server's own defaults cannot be others than those that are asked about.
            arguments = self._tools.completed(params.name, params.arguments or {})
        except SchemaDefaultError as error:
            named = Round.of(params, self._calls.name or "")
            refused = await self._calls.withdrawn(
                self._call(params, named.call_id if named.asked else None),
                f"The arguments of {params.name!r} cannot be completed: {error}.",
            )
            return _refusal(refused.text)
        params = params.model_copy(update={"arguments": arguments})
        request = Request(
            params,
            ctx.session,
            ctx.request_id,
            lambda named: self._call(params, named),
            lambda turn, arguments: self._run(ctx, params, turn, arguments),
            _failed,
        )
        try:
            answer = await self._calls.carried_out(request)
        except _RefusedError as refused:
            return _refusal(f"Not done. {refused}")
        return _refusal(answer.text) if isinstance(answer, Refusal) else answer

    async def _run(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
        turn: Round,
        arguments: dict[str, Any],
    ) -> CallToolResult:
        # Between the question and now somebody may have taken an hour to decide.
        if (doubt := await self._tools.doubt(params.name)) is not None:
            raise _RefusedError(doubt)
        try:
            same = self._tools.completed(params.name, arguments) == arguments
        except SchemaDefaultError:
            same = False
        if not same:
            # Only an approver's edit can do this.
            raise _RefusedError(
                "The approved arguments leave out a value for which the tool has a default. Ask again."
            )
        seen = turn.restored(params, arguments)
        state = self._once(turn, seen.request_state)
        meta = passed_meta(ctx)
        progress = ctx.session.report_progress if "progress_token" in (ctx.meta or {}) else None
        sent = CallToolRequestParams(
            name=params.name,
            arguments=arguments,
            input_responses=seen.input_responses,
            request_state=state,
            _meta=_as_meta(meta),
        )
        found = await self._backend.session.send_request(
            CallToolRequest(params=sent), _ANSWER, progress_callback=progress
        )
        if isinstance(found, InputRequiredResult):
            if (why := self._upward.refusal(found)) is not None:
                raise _RefusedError(f"{why}.")
            raise ToolAsksError(own(found).model_copy(update={"request_state": _sealed(found.request_state)}))
        return own(found)

    def _once(self, turn: Round, state: str | None) -> str | None:
        """The server's own state; a state that was used carries nothing out again."""
        once, inner = _opened(state)
        for used in (turn.call_id if turn.asked else None, once):
            if used is not None and used in self._used:
                raise _RefusedError("This call was carried out before.")
            if used is not None:
                self._used.add(used)
        return inner

    def _call(self, params: CallToolRequestParams, call_id: str | None) -> ToolCall:
        return self._calls.call(params.name, params.arguments, None, call_id, None)


def _sealed(state: str | None) -> str:
    # Whatever the server writes, it is never taken for a state of the guard's own.
    return json.dumps({_SERVERS: state, "once": secrets.token_hex(16)})


def _opened(state: str | None) -> tuple[str | None, str | None]:
    if state is None:
        return None, None
    found = json.loads(state)
    return found["once"], found[_SERVERS]


def _as_meta(meta: dict[str, Any] | None) -> RequestParamsMeta | None:
    return None if meta is None else RequestParamsMeta(**meta)  # type: ignore[typeddict-item]  # the client's own members pass as they came


def _refusal(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _failed(result: CallToolResult) -> str | None:
    if not result.is_error:
        return None
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))
