"""What the client speaks to: it takes the shape of the server behind it when the client first asks for something."""

from __future__ import annotations

from typing import Any, Final

import anyio
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ClientCapabilities,
    ListToolsResult,
    PaginatedRequestParams,
    ServerCapabilities,
)
from pydantic import ValidationError

from toolgate_integrations.mcp_proxy.backend import Backend
from toolgate_integrations.mcp_proxy.calls import ToolCalls
from toolgate_integrations.mcp_proxy.passing import pass_on
from toolgate_integrations.mcp_proxy.stdio import Questions
from toolgate_integrations.mcp_proxy.tools import Tools
from toolgate_integrations.mcp_proxy.upward import Upward

__all__ = ["Front"]

Context = ServerRequestContext[Any, Any]
_CHANGES: Final = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


class Front:
    """The proxy's server, as a middleware of itself.

    Args:
        server: The server that is to take shape.
        backend: The server behind it.
        upward: What the server behind it may ask of the client.
        tools: Its tools.
        calls: Carries out calls of them.
        bus: Where the client hears of changes.
        questions: The client's requests that have no answer yet.

    Attributes:
        server: as given.
        options: What the client is told in a handshake.
    """

    def __init__(
        self,
        server: Server[Any],
        backend: Backend,
        upward: Upward,
        tools: Tools,
        calls: ToolCalls,
        bus: InMemorySubscriptionBus,
        questions: Questions,
    ) -> None:
        self.server = server
        self._backend, self._upward, self._tools, self._calls, self._bus = backend, upward, tools, calls, bus
        self.options: InitializationOptions = server.create_initialization_options(_CHANGES)
        self._questions = questions
        self._shaped = False

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """See that the server is there before a request of the client is looked at."""
        if ctx.request_id is None:
            return await call_next(ctx)
        if ctx.method != "subscriptions/listen":
            self._questions.asked(ctx.request_id)
        try:
            return await self._served(ctx, call_next)
        except anyio.get_cancelled_exc_class():
            self._questions.settled(ctx.request_id)
            raise

    async def _served(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        self._upward.session = ctx.session
        if ctx.method == "initialize":
            self._upward.declared = _declared(ctx)
        await self._backend.wanted(self._upward)
        if not self._shaped:
            self._shaped = True
            self._take_shape()
        return await call_next(ctx)

    def _take_shape(self) -> None:
        session = self._backend.session
        offers = session.server_capabilities or ServerCapabilities()
        if offers.tools is not None:
            self.server.add_request_handler("tools/list", PaginatedRequestParams, self._list)
            self.server.add_request_handler("tools/call", CallToolRequestParams, self._calls)
        pass_on(self.server, self._backend, offers, self._bus)
        self.server.instructions = session.instructions
        told = self.server.create_initialization_options(_CHANGES)
        self.options.capabilities, self.options.instructions = told.capabilities, told.instructions

    async def _list(self, _: Context, params: PaginatedRequestParams) -> ListToolsResult:
        if params.cursor is not None:
            raise MCPError(code=INVALID_PARAMS, message="there is one page of tools, without a cursor")
        return ListToolsResult(tools=await self._tools.shown())


def _declared(ctx: Context) -> ClientCapabilities | None:
    """What a client says in a handshake, before the handshake is done."""
    try:
        return ClientCapabilities.model_validate((ctx.params or {}).get("capabilities") or {})
    except ValidationError:
        return None
