"""A line for each request, where the operator asks for it."""

import logging
from collections.abc import Mapping
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.reporting.context import ORGANIZATION
from toolgate_service.reporting.formats import FIELDS
from toolgate_service.web.at_once import Immediate, Written
from toolgate_service.web.watched import BEGAN, HUNG_UP, Tell, watched

ACCESS = "toolgate.access"
logger = logging.getLogger(ACCESS)

#: letters of a path that are written down
LONGEST = 200
_REQUEST_ID = b"x-request-id"
_ORGANIZATION = b"x-toolgate-organization"


class Noted:
    """The gateway, with a line for each of its requests.

    Args:
        inner: the gateway's application.
    """

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began, status = scope.get(BEGAN) or perf_counter(), HUNG_UP
        given: Mapping[bytes, bytes] = {}

        async def sending(message: Message) -> None:
            nonlocal status, given
            if message["type"] == "http.response.start":
                status, given = message["status"], dict(message["headers"])
            await send(message)

        try:
            await self._inner(scope, receive, sending)
        finally:
            seconds = perf_counter() - began
            organization = scope.get(ORGANIZATION) or given.get(_ORGANIZATION, b"").decode()
            # As it was sent, escapes and all: as it is meant it may break the line. Never the query: it may hold a text.
            path = scope["raw_path"].partition(b"?")[0][:LONGEST].decode("latin-1")
            request_id = given.get(_REQUEST_ID, b"").decode()
            _note(scope["method"], path, status, seconds, request_id, organization)


def noted_at_once(quick: Mapping[bytes, Immediate]) -> Mapping[bytes, Immediate]:
    """Return who answers at once, with a line for each of their answers.

    Args:
        quick: who answers at once, by path.
    """
    return watched(quick, _noting)


def _noting(path: str) -> Tell:
    def note(answer: Written, began: float) -> None:
        status, text = answer
        request_id, organization = _header(text, _REQUEST_ID), _header(text, _ORGANIZATION)
        _note("POST", path, status, perf_counter() - began, request_id, organization)

    return note


def _header(text: bytes, name: bytes) -> str:
    """Return a header of an answer that is written already."""
    return text.partition(name + b": ")[2].partition(b"\r\n")[0].decode()


def _note(method: str, path: str, status: int, seconds: float, request_id: str, organization: str) -> None:
    fields = {
        "request_id": request_id,
        "method": method,
        "path": path,
        "status": status,
        "duration_ms": round(seconds * 1000, 3),
        "organization_id": organization or None,
    }
    logger.info(
        "%s %s %d in %.3f ms, organization %s (request %s)",
        method,
        path,
        status,
        seconds * 1000,
        organization or "-",
        request_id,
        extra={FIELDS: fields},
    )
