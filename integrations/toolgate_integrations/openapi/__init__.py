"""REST APIs: `httpx.Client(transport=GuardTransport(httpx.HTTPTransport(), "openapi.json", prefix="stripe"))`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from re import Pattern
from types import TracebackType
from typing import Any, Final, Self

import httpx

from toolgate import ConfigurationError, Guard
from toolgate._call import OnHold
from toolgate._capture.rules import AmountFrom
from toolgate_integrations.base import ToolActions
from toolgate_integrations.openapi.document import Document
from toolgate_integrations.openapi.policy import REFUSE, Road
from toolgate_integrations.openapi.requests import aread, read

__all__ = ["AsyncGuardTransport", "GuardTransport"]

_MAX_BODY: Final = 1024 * 1024
_FAILED: Final = 400


class HTTPStatusError(Exception):
    """HTTP error status: logged as a failure, and returned to the caller."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"the API answered {response.status_code}")
        self.response = response


class _Guarding:
    _sends = ""
    _usual = ""

    def __init__(
        self,
        transport: Any,
        document: Document,
        *,
        prefix: str,
        guard: Guard | None = None,
        servers: Sequence[str] | None = None,
        unknown: str = REFUSE,
        actions: ToolActions | None = None,
        amounts: Mapping[str, AmountFrom] | None = None,
        headers: Iterable[str] = (),
        redact: Iterable[str | Pattern[str]] = (),
        on_hold: OnHold = "raise",
        hold_timeout: float | None = None,
        max_body: int = _MAX_BODY,
    ) -> None:
        if not callable(getattr(transport, self._sends, None)):
            raise ConfigurationError(
                f"transport is {transport!r}, which has no {self._sends}; pass what sends the requests, such as "
                f"{self._usual}"
            )
        self._transport = transport
        self._road = Road(
            document,
            prefix=prefix,
            guard=guard,
            servers=servers,
            unknown=unknown,
            actions=actions,
            amounts=amounts,
            headers=headers,
            redact=redact,
            on_hold=on_hold,
            hold_timeout=hold_timeout,
            max_body=max_body,
        )

    @property
    def actions(self) -> Mapping[str, str]:
        """Actions by `operationId`, or by `GET:/path/{template}`."""
        return dict(self._road.actions)


def _judge(context: dict[str, Any], response: Any) -> None:
    context["http_status"] = response.status_code
    if response.status_code >= _FAILED:
        raise HTTPStatusError(response)


class GuardTransport(_Guarding, httpx.BaseTransport):
    """Guards each request that an `httpx.Client` sends, as an operation of an OpenAPI document.

    Redirects that the client follows, and requests that it repeats, are requests of their own. Works with clients of
    `httpx2` too, around one of its transports.

    Args:
        transport: What sends the requests, such as `httpx.HTTPTransport()`.
        document: The API's OpenAPI 3 document: parsed, a path, or its text; YAML where `yaml` is installed.
        prefix: What the actions begin with: the operation `PostRefunds` of `prefix="stripe"` is `stripe.PostRefunds`.
        guard: The guard that asks; None is the environment's.
        servers: Addresses of the API in place of the document's.
        unknown: What becomes of requests that are no operation of the document: `refuse`, or the action they are
            asked for under.
        actions: Actions of operations by their names, in place of the default: a mapping, or a function.
        amounts: By action, what is compared with `max_amount` where that is no argument `amount`: an argument's name,
            or a function, as `amount` of `guarded`.
        headers: Headers that are arguments; others are neither shown nor bound.
        redact: Names and patterns of what nobody is shown, as for `guarded`.
        on_hold: What a held request does, as for `guarded`.
        hold_timeout: Seconds to wait for the person; None waits as long as it takes.
        max_body: The longest body that is read, and sent, in bytes.

    Raises:
        ConfigurationError: An argument is wrong, or the document is.
    """

    _sends = "handle_request"
    _usual = "httpx.HTTPTransport()"

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Ask, send, record.

        Args:
            request: The request.

        Raises:
            GuardError: It was not sent.
        """
        asked = self._road.asked(request, read(request, self._road.max_body))
        try:
            with self._road.block(asked) as act:
                sent = self._road.approved(asked, act.context)
                response: httpx.Response = self._transport.handle_request(sent)
                _judge(act.context, response)
        except HTTPStatusError as failure:
            response = failure.response
        return response

    def close(self) -> None:
        """Close the transport that sends."""
        self._transport.close()

    def __enter__(self) -> Self:
        self._transport.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._transport.__exit__(exc_type, exc_value, traceback)


class AsyncGuardTransport(_Guarding, httpx.AsyncBaseTransport):
    """Guards each request that an `httpx.AsyncClient` sends, like `GuardTransport`."""

    _sends = "handle_async_request"
    _usual = "httpx.AsyncHTTPTransport()"

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Ask, send, record.

        Args:
            request: The request.

        Raises:
            GuardError: It was not sent.
        """
        asked = self._road.asked(request, await aread(request, self._road.max_body))
        try:
            async with self._road.block(asked) as act:
                sent = self._road.approved(asked, act.context)
                response: httpx.Response = await self._transport.handle_async_request(sent)
                _judge(act.context, response)
        except HTTPStatusError as failure:
            response = failure.response
        return response

    async def aclose(self) -> None:
        """Close the transport that sends."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._transport.__aexit__(exc_type, exc_value, traceback)
