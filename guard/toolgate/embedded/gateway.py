"""The gateway in this process, as a guard asks it and as the person at this machine decides."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

from toolgate._capture.jsontext import dumps, loads
from toolgate._http.messages import InProcessGateway, Request, Response, TransportError
from toolgate.embedded.loading import Answered, Embedded
from toolgate.errors import ConfigurationError
from toolgate.requested import Requested

__all__ = ["EmbeddedGateway"]

# The person waits for their own machine; a disk may be slow.
_TO_DECIDE: Final = 30.0
_PAGE: Final = 100


class EmbeddedGateway(InProcessGateway):
    """The gateway behind `Guard.embedded`, and the person at this machine.

    It is the same process, so this is a guardrail and no boundary: code that can call a tool can call
    `approve` as well.

    Args:
        embedded: The gateway.
    """

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._pid = os.getpid()
        self._closed = False

    def pending(self) -> list[Requested]:
        """The requests that wait for a decision, the oldest first.

        Raises:
            ConfigurationError: The gateway cannot be asked.
        """
        found: list[Requested] = []
        while True:
            target = f"/api/approvals?status=pending&limit={_PAGE}&offset={len(found)}"
            page: Any = self._decided("GET", target, None)
            found += [
                Requested(one["id"], one["action"], one["agent_id"], one["context"], one["reason"])
                for one in page
            ]
            if len(page) < _PAGE:
                return found[::-1]

    def approve(
        self, approval_id: str, *, note: str | None = None, context: Mapping[str, Any] | None = None
    ) -> None:
        """Approve a request: the same call passes once.

        Args:
            approval_id: The request, from `ApprovalPending.approval_id` or `pending`.
            note: What is told beside the decision.
            context: The whole context as it may happen instead.

        Raises:
            ConfigurationError: The request is unknown or no longer pending, or the context cannot be.
        """
        body: dict[str, Any] = {"note": note}
        if context is not None:
            body["context"] = dict(context)
        self._decided("POST", f"/api/approvals/{quote(approval_id, safe='')}/approve", body)

    def deny(self, approval_id: str, *, note: str | None = None) -> None:
        """Refuse a request.

        Args:
            approval_id: The request, from `ApprovalPending.approval_id` or `pending`.
            note: The reason, told to whoever asked.

        Raises:
            ConfigurationError: The request is unknown or no longer pending.
        """
        self._decided("POST", f"/api/approvals/{quote(approval_id, safe='')}/deny", {"note": note})

    def send(self, request: Request, seconds: float) -> Response:
        """Response a request of the guard's."""
        return Response(*_waited(self._asked(request), seconds))

    async def asend(self, request: Request, seconds: float) -> Response:
        """As `send`; other tasks of the loop go on meanwhile."""
        asked = self._asked(request)
        answered = asyncio.wrap_future(asked)
        try:
            async with asyncio.timeout(seconds):
                return Response(*await answered)
        except TimeoutError as error:
            if asked.done() and not asked.cancelled():
                # It was answered in time, and this loop was held up.
                return Response(*asked.result())
            raise _too_late(seconds) from error
        except asyncio.CancelledError:
            if not answered.cancelled() or _cancelling():
                raise
            raise TransportError("the embedded gateway ended", answered=False) from None

    def guard_closed(self) -> None:
        """The guard is closed: end, in order."""
        self._closed = True
        # In a forked child there is no thread to end; it is the parent's.
        if os.getpid() == self._pid:
            self._embedded.close()

    def end(self) -> None:
        """Begin to end and wait for nothing, for a guard that nobody holds any more."""
        self._closed = True
        if os.getpid() == self._pid:
            self._embedded.end()

    def _asked(self, request: Request) -> Future[Answered]:
        parts = urlsplit(request.url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        return self._future(
            lambda: self._embedded.request(request.method, target, request.headers, request.body)
        )

    def _decided(self, method: str, target: str, body: dict[str, Any] | None) -> Any:
        raw = None if body is None else dumps(body).encode()
        status, _, content = _waited(
            self._future(lambda: self._embedded.decide(method, target, raw)), _TO_DECIDE
        )
        read: Any = loads(content, exactly=True)
        if status != HTTPStatus.OK:
            detail = read.get("detail") if isinstance(read, dict) else None
            raise ConfigurationError(f"the decision was not taken: {detail or status}")
        return read

    def _future(self, ask: Any) -> Future[Answered]:
        if os.getpid() != self._pid:
            raise ConfigurationError(
                f"this embedded gateway runs in process {self._pid}, not in its forked child {os.getpid()}; call "
                "Guard.embedded in the child, or start it with multiprocessing's 'spawn'"
            )
        if self._closed:
            raise ConfigurationError("the embedded gateway is closed; make a new Guard.embedded")
        try:
            future: Future[Answered] = ask()
        except RuntimeError as error:
            raise TransportError("the embedded gateway ended", answered=False, reached=False) from error
        return future


def _waited(future: Future[Answered], seconds: float) -> Answered:
    try:
        return future.result(seconds)
    except TimeoutError as error:
        future.cancel()
        raise _too_late(seconds) from error
    except BaseException:
        # Interrupted, or the gateway ended.
        if future.cancelled():
            raise TransportError("the embedded gateway ended", answered=False) from None
        future.cancel()
        raise


def _too_late(seconds: float) -> TransportError:
    return TransportError(f"no answer within {seconds:.1f} s", answered=False)


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
