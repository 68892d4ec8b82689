"""Guarded HTTP transports for REST APIs: `httpx.Client(transport=GuardTransport(…, "openapi.json", prefix="stripe"))`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import httpx

from toolgate_integrations.openapi.policy import TransportBase
from toolgate_integrations.openapi.requests import aread, read

__all__ = ["AsyncGuardTransport", "GuardTransport"]

_FAILED: Final = 400


class HTTPStatusError(Exception):
    """Error for the log entry of a request to which the API responded with an HTTP error status.

    The caller receives the response.
    """

    def __init__(self, response: Any) -> None:
        super().__init__(f"the API answered {response.status_code}")
        self.response = response


def _judge(context: dict[str, Any], response: Any) -> None:
    context["http_status"] = response.status_code
    if response.status_code >= _FAILED:
        raise HTTPStatusError(response)


class GuardTransport(TransportBase, httpx.BaseTransport):
    """Transport of an `httpx.Client` that checks and logs each request as an operation of an OpenAPI document.

    Redirects and retries of the client are checked as separate requests. Clients of `httpx2` are supported too, with
    one of the transports of `httpx2`.

    Args:
        transport: Transport that sends the requests, such as `httpx.HTTPTransport()`.
        document: The API's OpenAPI 3 document: parsed, as the path of a file, or as text. YAML needs the package
            `pyyaml`.
        prefix: First part of each action: with `prefix="stripe"`, the operation `PostRefunds` has the action
            `stripe.PostRefunds`.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        servers: Base URLs of the API, instead of those in the document.
        unknown: Handling of requests that match no operation of the document: `refuse`, or an action under which they
            are checked.
        actions: Actions by operation names, as a mapping or a function of the name. Operations without an entry have
            their default action.
        amounts: Maps actions to the value that the gateway compares with `max_amount`: the name of an argument, or a
            function, as for the option `amount` of `guarded`. For other actions, the argument `amount` is compared.
        headers: Names of headers that are arguments of the check. An approver does not see other headers, and an
            approval does not cover them.
        redact: Names and patterns of arguments that are hidden, as for `guarded`.
        on_hold: Reaction to a request that requires an approval, as for `guarded`.
        hold_timeout: Seconds to wait for the approver; None for no limit.
        max_body: Maximum length of a request body, in bytes.

    Raises:
        ConfigurationError: An argument or the document is invalid.
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
    """Asynchronous form of `GuardTransport`, for an `httpx.AsyncClient`."""

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
