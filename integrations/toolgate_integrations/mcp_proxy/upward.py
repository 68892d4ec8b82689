"""What the server behind the proxy asks and tells the client: it passes if the client can and the operator lets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mcp import MCPError
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_types import (
    INVALID_REQUEST,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitCompleteNotification,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SamplingCapability,
    ToolListChangedNotification,
)
from mcp_types.version import is_version_at_least

__all__ = ["Allowed", "Upward"]


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a server may ask the client.

    Attributes:
        sampling: An answer of the client's model.
        elicitation: Something of the client's user.
        roots: The folders the client works in.
    """

    sampling: bool = False
    elicitation: bool = False
    roots: bool = False


class Upward:
    """The way from the server to the client.

    Args:
        allowed: What may pass.
        bus: Where clients of protocol 2026-07-28 hear of changes.

    Attributes:
        session: How the client is reached; that of its newest request.
        declared: What the client says it can while the handshake lasts.
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
        """Whether the client's requests stand alone, as from protocol 2026-07-28 on."""
        return self.session is not None and is_version_at_least(self.session.protocol_version, "2026-07-28")

    @property
    def sampling(self) -> Any:
        """Answers the server's questions to the model; None if they do not pass."""
        return self._sample if self._allowed.sampling and self._can.sampling is not None else None

    @property
    def sampling_capabilities(self) -> SamplingCapability | None:
        """What the client declared of it."""
        return self._can.sampling

    @property
    def elicitation(self) -> Any:
        """Answers the server's questions to the user; None if they do not pass."""
        return self._elicit if self._allowed.elicitation and self._can.elicitation is not None else None

    @property
    def roots(self) -> Any:
        """Answers which folders the client works in; None if that does not pass."""
        return self._list_roots if self._allowed.roots and self._can.roots is not None else None

    def refusal(self, asked: InputRequiredResult) -> str | None:
        """Why what a server asks in place of an answer does not pass; None if it does.

        Args:
            asked: Its questions.
        """
        for request in (asked.input_requests or {}).values():
            what = _KINDS[request.method]
            if not getattr(self._allowed, what):
                return f"the server asks for {what}, which does not pass here (toolgate mcp-proxy --allow-{what})"
        return None

    async def logged(self, params: LoggingMessageNotificationParams) -> None:
        """Pass on what the server logs."""
        if self.session is not None:
            await self.session.send_log_message(params.level, params.data, params.logger)

    async def heard(self, message: Any) -> None:
        """Pass on that something changed at the server."""
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
_NO_WAY: Final = "the client behind toolgate mcp-proxy speaks protocol 2026-07-28, where nobody is asked in the middle of a call"


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
