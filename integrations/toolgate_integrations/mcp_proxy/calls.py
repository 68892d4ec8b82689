"""Tool calls through the proxy: each call is checked, sent to the server behind the proxy, and logged."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    PaginatedRequestParams,
    RequestParamsMeta,
    TextContent,
    Tool,
)
from pydantic import TypeAdapter

from toolgate import ConfigurationError, GatewayUnavailable
from toolgate_integrations._json_schema import SchemaDefaultError, complete_arguments
from toolgate_integrations.base import ToolCall
from toolgate_integrations.mcp.calls import Calls, Refusal, Request, ToolAsksError, text_of
from toolgate_integrations.mcp.elicitation import Round
from toolgate_integrations.mcp_proxy.authzen.authorization import Authorization, mapping_error
from toolgate_integrations.mcp_proxy.authzen.errors import MappingError
from toolgate_integrations.mcp_proxy.backend import Backend
from toolgate_integrations.mcp_proxy.forwarding import Upward, own, passed_meta
from toolgate_integrations.mcp_proxy.pins import MAPPING_KEY, Pin, Pins

__all__ = ["ToolCalls"]

#: Maximum number of pages of a server's list of tools; a longer list is treated as an error.
_MOST_PAGES: Final = 200


class Tools:
    """The tools of the server behind the proxy, compared with their trusted definitions (pins).

    Args:
        backend: Connection to the server.
        pins: Trusted definitions of the server's tools.
        name: Configured name of the server.
        action_of: Function that returns the action of a tool.
        granted: Function that returns the actions for which the agent has a permission. If the function is None or
            returns None, every tool is listed.
    """

    def __init__(
        self,
        backend: Backend,
        pins: Pins,
        name: str,
        action_of: Callable[[str], str],
        granted: Callable[[], Awaitable[Collection[str] | None]] | None,
    ) -> None:
        self._backend, self._pins, self._name = backend, pins, name
        self._action_of, self._granted = action_of, granted
        self._known: Mapping[str, Pin] = {}

    async def shown(self) -> list[Tool]:
        """Return the list of tools for the client.

        For a tool whose definition has changed, the trusted definition is returned.

        Raises:
            MCPError: The server does not list its tools, or their trusted definitions cannot be read.
        """
        try:
            tools, pins = await self._list()
        except ConfigurationError as error:
            raise MCPError(code=INTERNAL_ERROR, message=f"the proxy blocks all tools: {error}") from error
        granted = None if self._granted is None else await self._granted()
        return [
            pins[tool.name].tool if pins[tool.name].changed else tool
            for tool in tools
            if granted is None or self._is_granted(tool, granted)
        ]

    async def doubt(self, tool: str) -> str | None:
        """Return the reason why a tool must not be called, or None if it may be called.

        A tool must not be called if the server no longer lists it, or if its definition has changed since it was
        trusted.
        """
        try:
            _, pins = await self._list()
        except (ConfigurationError, MCPError) as error:
            return f"The proxy blocks all tools of the server {self._name!r}: {error}."
        pin = pins.get(tool)
        if pin is None:
            return f"The server {self._name!r} lists no tool called {tool!r}."
        if pin.changed:
            return f"The description of the tool {tool!r} of the server {self._name!r} has changed since it was trusted. Calling the tool again does not help until the operator has checked the description with `toolgate mcp trust {self._name}`."
        return None

    def trusted(self, tool: str) -> Tool:
        """Return the trusted definition of a tool for which `doubt` returned None."""
        return self._known[tool].tool

    def completed(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of `arguments`, with the defaults of the tool's trusted input schema added.

        Raises:
            SchemaDefaultError: The defaults cannot be added.
        """
        return complete_arguments(self._known[tool].tool.input_schema, arguments)

    def _is_granted(self, tool: Tool, granted: Collection[str]) -> bool:
        if self._pins.reviews_mappings and MAPPING_KEY in tool.input_schema:
            # The actions of such a tool depend on its arguments.
            return True
        try:
            return self._action_of(tool.name) in granted
        except ConfigurationError:
            # Two tools have the same action. The tool stays in the list, so that a call to it returns this error to the
            # model.
            return True

    async def _list(self) -> tuple[list[Tool], Mapping[str, Pin]]:
        tools = await self._pages()
        self._known = self._pins.see(tools)
        return tools, self._known

    async def _pages(self) -> list[Tool]:
        session, cursor, tools = self._backend.session, None, list[Tool]()
        for _ in range(_MOST_PAGES):
            try:
                page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                self._backend.drop_failed_connection(error)
                raise
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise MCPError(
            code=INTERNAL_ERROR,
            message=f"the server {self._name!r} sends a list of tools with too many pages",
        )


_ANSWER: Final = TypeAdapter[CallToolResult | InputRequiredResult](CallToolResult | InputRequiredResult)
_SERVERS: Final = "server"
Context = ServerRequestContext[Any, Any]


class _RefusedError(Exception):
    """Raised if the proxy must not send an allowed call to the server; the message is the reason."""


class ToolCalls:
    """Handler of the client's tool calls.

    Args:
        calls: Checks and logs the calls.
        tools: The server's tools.
        backend: Connection to the server.
        upward: Object that forwards the server's requests to the client.
        authorization: Maps calls to checks by AuthZEN mappings; None to check them as calls of agents.
    """

    def __init__(
        self,
        calls: Calls,
        tools: Tools,
        backend: Backend,
        upward: Upward,
        authorization: Authorization | None = None,
    ) -> None:
        self._calls, self._tools, self._backend, self._upward = calls, tools, backend, upward
        self._authorization = authorization
        # The request states that clients have already used are kept only in memory, because a state is valid only in
        # this process.
        self._used: set[str] = set()

    async def __call__(
        self, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Check the call, send it to the server if it is allowed, and log the outcome; the model reads a refusal."""
        if (doubt := await self._tools.doubt(params.name)) is not None:
            return await self._withdrawn(params, doubt)
        try:
            # The defaults are added before the check, so that the server cannot apply other defaults after it.
            arguments = self._tools.completed(params.name, params.arguments or {})
        except SchemaDefaultError as error:
            return await self._withdrawn(
                params, f"The arguments of {params.name!r} cannot be completed: {error}."
            )
        params = params.model_copy(update={"arguments": arguments})
        try:
            answer = await self._calls.carried_out(self._request(ctx, params))
        except _RefusedError as refused:
            return _refusal(f"Not done. {refused}")
        if not isinstance(answer, Refusal):
            return answer
        if self._authorization is not None and isinstance(answer.error, GatewayUnavailable):
            raise MCPError(code=INTERNAL_ERROR, message=answer.text)
        return _refusal(answer.text)

    def _request(self, ctx: Context, params: CallToolRequestParams) -> Request[CallToolResult]:
        if self._authorization is None:
            return Request(
                params,
                ctx.session,
                ctx.request_id,
                lambda named: self._call(params, named),
                lambda turn, arguments: self._run(ctx, params, turn, arguments),
                _failed,
            )
        try:
            mapped = self._authorization.map_call(ctx, self._tools.trusted(params.name), params)
        except MappingError as error:
            self._calls.record_denial(self._call(params, None), str(error))
            raise mapping_error(error) from error
        except ConfigurationError as error:
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error

        async def run(turn: Round, *approved: Mapping[str, Any]) -> CallToolResult:
            try:
                arguments = mapped.restore(approved)
            except MappingError as error:
                raise _RefusedError(f"{error}.") from error
            return await self._run(ctx, params, turn, arguments)

        return Request(
            params,
            ctx.session,
            ctx.request_id,
            lambda named: mapped.calls(named)[0],
            run,
            _failed,
            further=lambda named: mapped.calls(named)[1:],
        )

    async def _withdrawn(self, params: CallToolRequestParams, why: str) -> CallToolResult:
        turn = Round.of(params, self._calls.name or "")
        call = self._call(params, turn.call_id if turn.asked else None)
        return _refusal((await self._calls.withdrawn(why, call)).text)

    async def _run(
        self,
        ctx: Context,
        params: CallToolRequestParams,
        turn: Round,
        arguments: dict[str, Any],
    ) -> CallToolResult:
        # The tool's definition is compared again, because it may have changed while the call waited for the approver.
        if (doubt := await self._tools.doubt(params.name)) is not None:
            raise _RefusedError(doubt)
        try:
            same = self._tools.completed(params.name, arguments) == arguments
        except SchemaDefaultError:
            same = False
        if not same:
            # A default is missing only if the approver's edit removed it. The call is refused, because the server could
            # use another value.
            raise _RefusedError(
                "Not done: the approver removed an argument for which the tool has a default value. Call "
                "the tool again."
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
        """Return the server's own part of a request state, and mark the state as used, so that the call runs only once.

        Raises:
            _RefusedError: The state was used before, so the call was already carried out.
        """
        once, inner = _opened(state)
        for used in (turn.call_id if turn.asked else None, once):
            if used is not None and used in self._used:
                raise _RefusedError("This call has already run.")
            if used is not None:
                self._used.add(used)
        return inner

    def _call(self, params: CallToolRequestParams, call_id: str | None) -> ToolCall:
        return self._calls.call(params.name, params.arguments, None, call_id, None)


def _sealed(state: str | None) -> str:
    # The server's state is wrapped, so that it cannot be mistaken for a request state of the guard.
    return json.dumps({_SERVERS: state, "once": secrets.token_hex(16)})


def _opened(state: str | None) -> tuple[str | None, str | None]:
    if state is None:
        return None, None
    found = json.loads(state)
    return found["once"], found[_SERVERS]


def _as_meta(meta: dict[str, Any] | None) -> RequestParamsMeta | None:
    return None if meta is None else RequestParamsMeta(**meta)  # type: ignore[typeddict-item]  # the client's own members are forwarded unchanged


def _refusal(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _failed(result: CallToolResult) -> str | None:
    if not result.is_error:
        return None
    return text_of(result.content)
