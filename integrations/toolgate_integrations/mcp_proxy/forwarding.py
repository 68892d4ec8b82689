"""Forwarding of everything except tool calls through the proxy: prompts, resources, and the server's own requests."""

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
    """Kinds of requests that the server behind the proxy may send to the client.

    Attributes:
        sampling: Requests for a response of the client's model.
        elicitation: Requests for input of the client's user.
        roots: Requests for the folders in which the client works.
    """

    sampling: bool = False
    elicitation: bool = False
    roots: bool = False


class Upward:
    """Object that forwards the server's requests and notifications to the client.

    Args:
        allowed: Kinds of requests that are forwarded.
        bus: Bus through which clients of protocol 2026-07-28 are notified of changes.
        serves_many: True if the proxy serves several clients over HTTP. The server's requests and log messages are then
            not forwarded, because they could reach the wrong client, and `session` stays None.

    Attributes:
        session: Session of the client's newest request; None before the first request.
        declared: Capabilities that the client declared in its `initialize` request; used until the session contains
            them.
    """

    def __init__(self, allowed: Allowed, bus: InMemorySubscriptionBus, *, serves_many: bool = False) -> None:
        self.serves_many = serves_many
        self.session: ServerSession | None = None
        self.declared: ClientCapabilities | None = None
        self._allowed = allowed
        self._bus = bus

    @property
    def _can(self) -> ClientCapabilities:
        found = None if self.session is None else self.session.client_capabilities
        return found or self.declared or ClientCapabilities()

    @property
    def has_independent_requests(self) -> bool:
        """True if the client's requests are independent of each other, without a session (from protocol 2026-07-28 on).

        The server can then send no requests to the client while a call runs.
        """
        if self.serves_many:
            return True
        return self.session is not None and is_version_at_least(self.session.protocol_version, "2026-07-28")

    @property
    def sampling(self) -> Any:
        """Callback that forwards requests for a response of the client's model; None if they are not forwarded."""
        return self._sample if self._allowed.sampling and self._can.sampling is not None else None

    @property
    def sampling_capabilities(self) -> SamplingCapability | None:
        """The client's sampling capabilities; None if it declares none."""
        return self._can.sampling

    @property
    def elicitation(self) -> Any:
        """Callback that forwards requests for input of the client's user; None if they are not forwarded."""
        return self._elicit if self._allowed.elicitation and self._can.elicitation is not None else None

    @property
    def roots(self) -> Any:
        """Callback that forwards requests for the client's folders; None if they are not forwarded."""
        return self._list_roots if self._allowed.roots and self._can.roots is not None else None

    def refusal(self, asked: InputRequiredResult) -> str | None:
        """Return the reason why a server's request for input must not reach the client, or None if it may."""
        for request in (asked.input_requests or {}).values():
            what = _KINDS[request.method]
            if not getattr(self._allowed, what):
                return f"the proxy does not forward {what} requests of the server; to allow them, start toolgate mcp-proxy with --allow-{what}"
        return None

    async def forward_log_message(self, params: LoggingMessageNotificationParams) -> None:
        """Forward a log message of the server to the client."""
        if self.session is not None:
            await self.session.send_log_message(params.level, params.data, params.logger)

    async def forward_notification(self, message: Any) -> None:
        """Forward a notification about a change at the server to the client."""
        session = self.session
        if not isinstance(message, _PASSED):
            return
        if session is None or self.has_independent_requests:
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
# Metadata keys that describe a single connection. The proxy has two, one to the client and one to the server, so it
# does not forward these keys from one to the other.
_CONNECTIONS: Final = {
    PROTOCOL_VERSION_META_KEY,
    CLIENT_INFO_META_KEY,
    CLIENT_CAPABILITIES_META_KEY,
    SERVER_INFO_META_KEY,
    "progress_token",
}


def passed_meta(ctx: Context) -> dict[str, Any] | None:
    """Return that part of the metadata of a client's request that is forwarded to the server."""
    return {key: value for key, value in (ctx.meta or {}).items() if key not in _CONNECTIONS} or None


def own(result: ResultT) -> ResultT:
    """Return the server's result without the metadata that describes the connection to the server."""
    kept = {key: value for key, value in (result.meta or {}).items() if key not in _CONNECTIONS}
    return result.model_copy(update={"meta": kept or None})


def pass_on(
    server: Server[Any], backend: Backend, offers: ServerCapabilities, bus: InMemorySubscriptionBus
) -> None:
    """Add handlers that forward all requests of the client except those about tools to the server behind the proxy.

    Args:
        server: The proxy's own server object, to which the client is connected.
        backend: Connection to the server behind the proxy.
        offers: Capabilities of the server behind the proxy.
        bus: Bus through which the client is notified of changes.
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
