"""Types of ASGI messages, and the reader of bounded bodies for the servers of the command line."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


async def receive_body(receive: Receive, max_body: int, seconds: float) -> bytes | HTTPStatus | None:
    """Receive the body of a request.

    Args:
        receive: the ASGI function.
        max_body: maximum bytes of the body.
        seconds: time limit.

    Returns:
        The body, the HTTP status for a body that is too large or too slow, or None if the client has disconnected.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > max_body:
                    return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                more = message.get("more_body", False)
    except TimeoutError:
        return HTTPStatus.REQUEST_TIMEOUT
    return bytes(body)
