"""REST APIs: `httpx.Client(transport=GuardTransport(httpx.HTTPTransport(), "openapi.json", prefix="stripe"))`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import httpx

from toolgate_integrations.openapi.policy import TransportBase
from toolgate_integrations.openapi.requests import aread, read

__all__ = ["AsyncGuardTransport", "GuardTransport"]

_FAILED: Final = 400


class HTTPStatusError(Exception):
    """HTTP error status: logged as a failure, and returned to the caller."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"the API answered {response.status_code}")
        self.response = response


def _judge(context: dict[str, Any], response: Any) -> None:
    context["http_status"] = response.status_code
    if response.status_code >= _FAILED:
        raise HTTPStatusError(response)


class GuardTransport(TransportBase, httpx.BaseTransport):
    """Transport that guards each request of an `httpx.Client`, as an operation of an OpenAPI document.

    Redirects and retries of the client are checked as separate requests. Clients of `httpx2` are supported too, with
    one of the transports of `httpx2`.

    Args:
        transport: Transport that sends the requests, such as `httpx.HTTPTransport()`.
        document: The API's OpenAPI 3 document: parsed, a path, or its text; in YAML if `yaml` is installed.
        prefix: Prefix of the actions: the operation `PostRefunds` of `prefix="stripe"` has the action
            `stripe.PostRefunds`.
        guard: The guard; None for the guard that is configured by the environment.
        servers: Base URLs of the API, instead of the document's.
        unknown: Handling of requests that match no operation of the document: `refuse`, or an action with which they
            are checked.
        actions: Actions by the names of operations, instead of the default: a mapping, or a function of the name.
        amounts: By action, the value that is compared with `max_amount` if it is not the argument `amount`: an
            argument's name or a function, like `amount` of `guarded`.
        headers: Headers that are arguments; an approver does not see other headers, and an approval does not bind them.
        redact: Names and patterns of hidden arguments, as for `guarded`.
        on_hold: Reaction to a request that requires an approval, as for `guarded`.
        hold_timeout: Seconds to wait for the approver; None for no limit.
        max_body: Maximum length of a body, in bytes.

    Raises:
        ConfigurationError: An argument or the document is wrong.
    """

    _sends = "handle_request"
    _example = "httpx.HTTPTransport()"

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Check the request, send it if it is allowed, and log the outcome.

        Raises:
            GuardError: The request was not sent.
        """
        asked = self._asked(request, read(request, self._max_body))
        try:
            with self._block(asked) as act:
                sent = self._approved(asked, act.context)
                response: httpx.Response = self._transport.handle_request(sent)
                _judge(act.context, response)
        except HTTPStatusError as failure:
            response = failure.response
        return response

    def close(self) -> None:
        """Close the wrapped transport."""
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


class AsyncGuardTransport(TransportBase, httpx.AsyncBaseTransport):
    """Transport that guards each request of an `httpx.AsyncClient`, like `GuardTransport`."""

    _sends = "handle_async_request"
    _example = "httpx.AsyncHTTPTransport()"

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Check the request, send it if it is allowed, and log the outcome.

        Raises:
            GuardError: The request was not sent.
        """
        asked = self._asked(request, await aread(request, self._max_body))
        try:
            async with self._block(asked) as act:
                sent = self._approved(asked, act.context)
                response: httpx.Response = await self._transport.handle_async_request(sent)
                _judge(act.context, response)
        except HTTPStatusError as failure:
            response = failure.response
        return response

    async def aclose(self) -> None:
        """Close the wrapped transport."""
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
