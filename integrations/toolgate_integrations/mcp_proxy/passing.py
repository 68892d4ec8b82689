"""What passes the proxy as it is: prompts, resources, completions, levels of logging."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from mcp import ClientSession
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    CompleteRequestParams,
    EmptyResult,
    GetPromptRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    Result,
    ServerCapabilities,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)

from toolgate_integrations.mcp_proxy.backend import Backend

__all__ = ["own", "pass_on", "passed_meta"]

Context = ServerRequestContext[Any, Any]
ResultT = TypeVar("ResultT", bound=Result)

# What describes one connection and not the other.
_CONNECTIONS: Final = {
    PROTOCOL_VERSION_META_KEY,
    CLIENT_INFO_META_KEY,
    CLIENT_CAPABILITIES_META_KEY,
    SERVER_INFO_META_KEY,
    "progress_token",
}


def passed_meta(ctx: Context) -> dict[str, Any] | None:
    """What of a request's metadata the server is given.

    Args:
        ctx: The request's.
    """
    return {key: value for key, value in (ctx.meta or {}).items() if key not in _CONNECTIONS} or None


def own(result: ResultT) -> ResultT:
    """A server's result as the proxy gives it: without what the server says of its own connection.

    Args:
        result: The server's.
    """
    kept = {key: value for key, value in (result.meta or {}).items() if key not in _CONNECTIONS}
    return result.model_copy(update={"meta": kept or None})


def pass_on(
    server: Server[Any], backend: Backend, offers: ServerCapabilities, bus: InMemorySubscriptionBus
) -> None:
    """Let the client have whatever the server offers beside its tools.

    Args:
        server: What the client speaks to.
        backend: The server.
        offers: What it offers.
        bus: Where the client hears of changes.
    """
    passing, add = _Passing(backend), server.add_request_handler
    if offers.prompts is not None:
        add("prompts/list", PaginatedRequestParams, passing.prompts)
        add("prompts/get", GetPromptRequestParams, passing.prompt)
    if offers.resources is not None:
        add("resources/list", PaginatedRequestParams, passing.resources)
        add("resources/templates/list", PaginatedRequestParams, passing.templates)
        add("resources/read", ReadResourceRequestParams, passing.resource)
        if offers.resources.subscribe:
            add("resources/subscribe", SubscribeRequestParams, passing.subscribed)
            add("resources/unsubscribe", UnsubscribeRequestParams, passing.unsubscribed)
    if offers.completions is not None:
        add("completion/complete", CompleteRequestParams, passing.completed)
    if offers.logging is not None:
        add("logging/setLevel", SetLevelRequestParams, passing.level)
    add("subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(bus))


class _Passing:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def _session(self) -> ClientSession:
        return self._backend.session

    async def prompts(self, _: Context, params: PaginatedRequestParams) -> Result:
        return own(await self._session.list_prompts(params=_page(params)))

    async def prompt(self, _: Context, params: GetPromptRequestParams) -> Result:
        return own(
            await self._session.get_prompt(
                params.name,
                params.arguments,
                input_responses=params.input_responses,
                request_state=params.request_state,
                allow_input_required=True,
            )
        )

    async def resources(self, _: Context, params: PaginatedRequestParams) -> Result:
        return own(await self._session.list_resources(params=_page(params)))

    async def templates(self, _: Context, params: PaginatedRequestParams) -> Result:
        return own(await self._session.list_resource_templates(params=_page(params)))

    async def resource(self, _: Context, params: ReadResourceRequestParams) -> Result:
        return own(
            await self._session.read_resource(
                str(params.uri),
                input_responses=params.input_responses,
                request_state=params.request_state,
                allow_input_required=True,
            )
        )

    async def subscribed(self, _: Context, params: SubscribeRequestParams) -> EmptyResult:
        return own(await self._session.subscribe_resource(str(params.uri)))

    async def unsubscribed(self, _: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        return own(await self._session.unsubscribe_resource(str(params.uri)))

    async def completed(self, _: Context, params: CompleteRequestParams) -> Result:
        context = None if params.context is None else params.context.arguments
        argument = {"name": params.argument.name, "value": params.argument.value}
        return own(await self._session.complete(params.ref, argument, context))

    async def level(self, _: Context, params: SetLevelRequestParams) -> EmptyResult:
        return own(await self._session.set_logging_level(params.level))


def _page(params: PaginatedRequestParams) -> PaginatedRequestParams:
    return PaginatedRequestParams(cursor=params.cursor)
