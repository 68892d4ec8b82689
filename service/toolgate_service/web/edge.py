"""The outermost room: request ids, the API version, the size limit, and the last word on a crash (decisions §2).

Plain ASGI, so that the busiest routes pay for nothing they do not use.
"""

import logging
import re
import sqlite3

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.errors import StorageFault
from toolgate_service.ids import new_id
from toolgate_service.web.replies import Reply
from toolgate_service.web.sizes import decompressed, limited

API_VERSION = "2026-11-20"

logger = logging.getLogger("toolgate.gateway")

#: where a request collects headers that belong on whatever answer it gets
HEADER_BAG = "toolgate.headers"

#: where the edge leaves the request's id for whoever answers a failure
REQUEST_ID = "toolgate.request_id"

#: the disk refused, is full, or another process held the database for too long: nothing is wrong with the request
STORAGE_FAULTS = (StorageFault, sqlite3.OperationalError, OperationalError, PoolTimeout)
RETRY_AFTER = 1

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def failure(scope: Scope, error: Exception) -> Reply:
    """Return the answer to a request that failed without its fault: no internals, but the way to find them."""
    request_id = scope[REQUEST_ID]
    if isinstance(error, STORAGE_FAULTS):
        detail = f"The gateway's database cannot be used; retry after {RETRY_AFTER} second (request id {request_id})"
        return Reply({"detail": detail}, 503, {"Retry-After": str(RETRY_AFTER)})
    return Reply({"detail": f"The gateway failed; the operator finds it under request id {request_id}"}, 500)


class Edge:
    """Wraps the whole gateway."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else new_id()
        scope[REQUEST_ID] = request_id
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers["X-API-Version"] = API_VERSION
                headers["X-Content-Type-Options"] = "nosniff"
                for name, value in scope.get(HEADER_BAG, {}).items():
                    headers[name] = value
            await send(message)

        try:
            await self._inner(scope, limited(decompressed(scope, limited(receive))), sending)
        except ClientDisconnect:
            # The caller hung up in the middle of the request.
            return
        except Exception as error:
            logger.exception("request %s failed", request_id)
            if not started:
                await failure(scope, error)(scope, receive, sending)
