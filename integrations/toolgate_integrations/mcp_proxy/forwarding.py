"""Forwarding of everything except tool calls: prompts, resources, completions, and the server's requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mcp import ClientSession, MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INVALID_REQUEST,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    ClientCapabilities,
    CompleteRequestParams,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitCompleteNotification,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    EmptyResult,
    ErrorData,
    GetPromptRequestParams,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotificationParams,
    PaginatedRequestParams,
    PromptListChangedNotification,
    ReadResourceRequestParams,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    Result,
    SamplingCapability,
    ServerCapabilities,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    ToolListChangedNotification,
    UnsubscribeRequestParams,
)
from mcp_types.version import is_version_at_least

if TYPE_CHECKING:
    from toolgate_integrations.mcp_proxy.backend import Backend

__all__ = ["own", "pass_on", "passed_meta"]


@dataclass(frozen=True, slots=True)
class Allowed:
    """Requests that the server may send to the client.

    Attributes:
        sampling: Requests for a response of the client's model.
        elicitation: Requests for input of the client's user.
        roots: Requests for the folders that the client works in.
    """

    sampling: bool = False
    elicitation: bool = False
    roots: bool = False


class Upward:
    """Forwarding of the server's requests and notifications to the client.

    Args:
        allowed: Requests that are forwarded.
        bus: Bus by which clients of protocol 2026-07-28 are notified of changes.

    Attributes:
        session: Session of the client's newest request.
        declared: Capabilities that the client declares in the handshake; used until the session has them.
    """

    def __init__(self, allowed: Allowed, bus: InMemorySubscriptionBus) -> None:
        self.session: ServerSession | None = None
        self.declared: ClientCapabilities | None = None
        self._allowed = allowed
        self._bus = bus

    @property
    def _can(self) -> ClientCapabilities:
        found = None if self.session is None else self.session.client_capabilities
        return found or self.declared or ClientCapabilities()

    @property
    def stands_alone(self) -> bool:
        """Return whether the client sends independent requests, as from protocol 2026-07-28 on."""
        return self.session is not None and is_version_at_least(self.session.protocol_version, "2026-07-28")

    @property
    def sampling(self) -> Any:
        """Callback that forwards requests for a response of the client's model; None if they are not allowed."""
        return self._sample if self._allowed.sampling and self._can.sampling is not None else None

    @property
    def sampling_capabilities(self) -> SamplingCapability | None:
        """The client's sampling capabilities."""
        return self._can.sampling

    @property
    def elicitation(self) -> Any:
        """Callback that forwards requests for input of the client's user; None if they are not allowed."""
        return self._elicit if self._allowed.elicitation and self._can.elicitation is not None else None

    @property
    def roots(self) -> Any:
        """Callback that forwards requests for the client's folders; None if they are not allowed."""
        return self._list_roots if self._allowed.roots and self._can.roots is not None else None

    def refusal(self, asked: InputRequiredResult) -> str | None:
        """Return the reason why a server's request for input is not forwarded, or None."""
        for request in (asked.input_requests or {}).values():
            what = _KINDS[request.method]
            if not getattr(self._allowed, what):
                return f"the server asks for {what}, which does not pass here (toolgate mcp-proxy --allow-{what})"
        return None

    async def logged(self, params: LoggingMessageNotificationParams) -> None:
        """Forward a log message of the server to the client."""
        if self.session is not None:
            await self.session.send_log_message(params.level, params.data, params.logger)

    async def heard(self, message: Any) -> None:
        """Forward a notification that something changed at the server."""
        session = self.session
        if session is None or not isinstance(message, _PASSED):
            return
        if self.stands_alone:
            if (event := _event(message)) is not None:
                await self._bus.publish(event)
        else:
            await session.send_notification(message)

    async def _sample(self, _: object, params: CreateMessageRequestParams) -> Any:
        answer = CreateMessageResultWithTools if params.tools else CreateMessageResult
        return await self._asked(CreateMessageRequest(params=params), answer)

    async def _elicit(self, _: object, params: ElicitRequestParams) -> Any:
        return await self._asked(ElicitRequest(params=params), ElicitResult)

    async def _list_roots(self, _: object) -> Any:
        return await self._asked(ListRootsRequest(), ListRootsResult)

    async def _asked(self, request: Any, answer: type[Any]) -> Any:
        session = self.session
        if session is None or not session.can_send_request:
            return ErrorData(code=INVALID_REQUEST, message=_NO_WAY)
        try:
            return await session.send_request(request, answer)
        except MCPError as error:
            return error.error


_KINDS: Final = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
_PASSED: Final = (
    ToolListChangedNotification,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ElicitCompleteNotification,
)
_NO_WAY: Final = "the client behind toolgate mcp-proxy speaks protocol 2026-07-28, which has no requests to the client during a call"


def _event(message: Any) -> Any:
    match message:
        case ToolListChangedNotification():
            return ToolsListChanged()
        case PromptListChangedNotification():
            return PromptsListChanged()
        case ResourceListChangedNotification():
            return ResourcesListChanged()
        case ResourceUpdatedNotification():
            return ResourceUpdated(uri=str(message.params.uri))
    return None


Context = ServerRequestContext[Any, Any]
ResultT = TypeVar("ResultT", bound=Result)
# Metadata that describes one of the two connections, and is not forwarded to the other.
_CONNECTIONS: Final = {
    PROTOCOL_VERSION_META_KEY,
    CLIENT_INFO_META_KEY,
    CLIENT_CAPABILITIES_META_KEY,
    SERVER_INFO_META_KEY,
    "progress_token",
}


def passed_meta(ctx: Context) -> dict[str, Any] | None:
    """Return the metadata of the client's request that is forwarded to the server."""
    return {key: value for key, value in (ctx.meta or {}).items() if key not in _CONNECTIONS} or None


def own(result: ResultT) -> ResultT:
    """Return the server's result without the metadata that describes the connection to the server."""
    kept = {key: value for key, value in (result.meta or {}).items() if key not in _CONNECTIONS}
    return result.model_copy(update={"meta": kept or None})


def pass_on(
    server: Server[Any], backend: Backend, offers: ServerCapabilities, bus: InMemorySubscriptionBus
) -> None:
    """Forward the client's requests for everything that the backend server offers besides tools.

    Args:
        server: The proxy's server, to which the client is connected.
        backend: Connection to the backend server.
        offers: Capabilities of the backend server.
        bus: Bus by which the client is notified of changes.
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
