"""The outermost room: request ids, who asks, what every answer carries, and the last word on a crash (decisions §2).

Plain ASGI, so that the busiest routes pay for nothing they do not use.
"""

import logging
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.errors import StorageFault
from toolgate_service.ids import new_id
from toolgate_service.reporting.context import REQUEST
from toolgate_service.settings import Settings
from toolgate_service.storage.outage import OUTAGE
from toolgate_service.web.headers import AnswerHeaders
from toolgate_service.web.origins import AllowedOrigins
from toolgate_service.web.proxies import FORWARDED_FOR, TrustedProxies
from toolgate_service.web.replies import NoContent, Reply
from toolgate_service.web.request_head import repeated_header
from toolgate_service.web.sizes import bounded

logger = logging.getLogger("toolgate.gateway")

#: where a request collects headers that belong on whatever answer it gets
HEADER_BAG = "toolgate.headers"

#: where the edge leaves the request's id for whoever answers a failure
REQUEST_ID = "toolgate.request_id"

#: the disk refused, is full, or another process held the database for too long: nothing is wrong with the request
STORAGE_FAULTS = (StorageFault, sqlite3.OperationalError, OperationalError, PoolTimeout)
RETRY_AFTER = 1

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


def request_id_of(given: Mapping[bytes, bytes]) -> str:
    """Return the request's id: the caller's own, where it may be one, or a new one.

    Args:
        given: the request's headers.
    """
    asked = given.get(b"x-request-id")
    return asked.decode() if asked is not None and _REQUEST_ID.fullmatch(asked) else new_id()


def failure(scope: Scope, error: Exception) -> Reply:
    """Return the answer to a request that failed without its fault: no internals, but the way to find them."""
    request_id = scope[REQUEST_ID]
    if isinstance(error, STORAGE_FAULTS):
        detail = f"The gateway's database cannot be used; retry after {RETRY_AFTER} second (request id {request_id})"
        return Reply({"detail": detail}, 503, {"Retry-After": str(RETRY_AFTER)})
    return Reply({"detail": f"The gateway failed; the operator finds it under request id {request_id}"}, 500)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator set for the edge."""

    headers: AnswerHeaders
    proxies: TrustedProxies
    origins: AllowedOrigins

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Read them from the settings."""
        return cls(
            AnswerHeaders.of(settings),
            TrustedProxies(settings.trusted_proxies),
            AllowedOrigins(settings.cors_origins),
        )


class Edge:
    """Wraps the whole gateway."""

    def __init__(self, inner: ASGIApp, rules: Rules) -> None:
        self._inner = inner
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        given: dict[bytes, bytes] = dict(scope["headers"])
        # Before the scope may become another: the connection leaves its word in the one it made.
        receiving = bounded(scope, given, receive)
        request_id = scope[REQUEST_ID] = request_id_of(given)
        # For the rest of the task: each request has its own.
        REQUEST.set(request_id)
        if scope["method"] == "HEAD":
            # GET without the body, which the server leaves away: it looks into its own scope.
            scope = {**scope, "method": "GET"}
        if self._rules.proxies and FORWARDED_FOR in given:
            self._rules.proxies.reveal_client(scope)
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = self._rules.headers.complete(
                    message.get("headers", ()), request_id, scope.get(HEADER_BAG)
                )
                message = {**message, "headers": headers}
            await send(message)

        try:
            inner = self._at_once(scope, given) or self._inner
            await inner(scope, receiving, sending)
        except ClientDisconnect:
            # The caller hung up in the middle of the request.
            return
        except Exception as error:
            if isinstance(error, STORAGE_FAULTS):
                OUTAGE.failed("requests", error)
            else:
                logger.exception("request %s failed", request_id)
            if not started:
                await failure(scope, error)(scope, receive, sending)

    def _at_once(self, scope: Scope, given: dict[bytes, bytes]) -> ASGIApp | None:
        """Return the answer to a request that needs no look inside; None for all others."""
        if self._rules.origins:
            origin = given.get(b"origin")
            scope[HEADER_BAG] = self._rules.origins.headers(origin)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in given:
                preflight = self._rules.origins.preflight(origin)
                if preflight is not None:
                    scope[HEADER_BAG].update(preflight)
                    return NoContent()
        if len(given) != len(scope["headers"]):
            name = repeated_header(scope["headers"])
            if name is not None:
                return Reply({"detail": {name: ["was sent more than once; send it once"]}}, 400)
        # PostgreSQL cannot even compare a text with NUL in it, and nothing has an id with one.
        if "\0" in scope["path"]:
            return Reply({"detail": "Not Found"}, 404)
        return None
