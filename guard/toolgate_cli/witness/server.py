"""HTTP server of a witness, with limits on the size and the duration of requests."""

import asyncio
import re
import signal
import socket
import sqlite3
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate_cli.asgi import Message, Receive, Send, receive_body
from toolgate_cli.witness.cosigner import Cosigner, Reply

if TYPE_CHECKING:
    from uvicorn import Server

#: maximum bytes of a body: 63 hashes, and a checkpoint with 16 signatures of the largest known type
MAX_BODY: Final = 128 * 1024
_MAX_HEAD: Final = 16 * 1024
#: maximum number of open connections; further requests get status 503
_MAX_CONNECTIONS: Final = 256
#: time limit in seconds to receive the head of a request; the same limit applies to the body and to an idle connection
RECEIVE_SECONDS: Final = 10.0

_SUBMISSION_PATH: Final = b"/add-checkpoint"
_LATEST_PATH: Final = re.compile(rb"/([0-9a-f]{64})/checkpoint")


class WitnessApp:
    """ASGI application that passes requests to a cosigner.

    Args:
        cosigner: object that handles the requests.
        max_body: maximum bytes of a body.
        receive_seconds: time limit in seconds to receive the head of a request; the same limit applies to the body.
    """

    def __init__(
        self, cosigner: Cosigner, *, max_body: int = MAX_BODY, receive_seconds: float = RECEIVE_SECONDS
    ) -> None:
        self._cosigner = cosigner
        self._max_body = max_body
        self.receive_seconds = receive_seconds
        #: whether the server was stopped by SIGINT
        self.interrupted = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        reply = await self._reply(scope, receive)
        if reply is not None:
            await _send_reply(send, reply)

    async def _reply(self, scope: Message, receive: Receive) -> Reply | None:
        """Return the reply to a request, or None if the client has disconnected."""
        path, method = scope["raw_path"], scope["method"]
        latest = _LATEST_PATH.fullmatch(path)
        if path != _SUBMISSION_PATH and not latest:
            return _error(HTTPStatus.NOT_FOUND)
        if method != ("GET" if latest else "POST"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED)
        if latest:
            return await self._run(self._cosigner.get_checkpoint, latest[1].decode())
        body = await self._receive_body(dict(scope["headers"]), receive)
        return await self._run(self._cosigner.add_checkpoint, body) if isinstance(body, bytes) else body

    async def _receive_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | Reply | None:
        if int(headers.get(b"content-length", b"0")) > self._max_body:
            return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = await receive_body(receive, self._max_body, self.receive_seconds)
        return _error(body) if isinstance(body, HTTPStatus) else body

    async def _run(self, handle: Callable[..., Reply], *arguments: Any) -> Reply:
        try:
            # The disk may be slow, so the event loop does not wait for it.
            return await asyncio.to_thread(handle, *arguments)
        except sqlite3.Error as error:
            typer.echo(f"toolgate: the state of the witness cannot be used: {error}", err=True)
        except Exception as error:  # noqa: BLE001 - an error must not stop the server
            typer.echo(f"toolgate: a request failed with an internal error: {type(error).__name__}", err=True)
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


def create_server(app: WitnessApp) -> "Server":
    """Return a uvicorn server for a witness."""
    # uvicorn is imported here, because an import at the top would take a quarter of the start time of other commands.
    from uvicorn import Config, Server

    class WitnessServer(Server):
        """uvicorn server that returns after SIGTERM and SIGINT; uvicorn itself would raise the signal again."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
            self.should_exit = True
            app.interrupted = sig == signal.SIGINT

    return WitnessServer(
        Config(
            app,
            http=_timed_protocol(app.receive_seconds),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=_MAX_HEAD,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=round(RECEIVE_SECONDS),
            timeout_graceful_shutdown=round(RECEIVE_SECONDS),
        )
    )


def _timed_protocol(seconds: float) -> "type[asyncio.Protocol]":
    """Return a class of connections that are closed if no head of a request arrives within this time.

    The time begins with the connection and again after each response. uvicorn alone has no limit for an incomplete
    head.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class TimedProtocol(H11Protocol):
        """HTTP protocol with a time limit for the head of each request."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
            super().connection_made(transport)
            # asyncio sets this option only for sockets that were created with the protocol number of TCP. Without it,
            # the body of a response is sent 40 ms after its head.
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._restart_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_timer()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing():
                self._restart_timer()

        def _restart_timer(self) -> None:
            self._cancel_timer()
            self._timer = self.loop.call_later(seconds, self._close_idle)

        def _cancel_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()

        def _close_idle(self) -> None:
            # `cycle` is None before the first request, although uvicorn declares another type.
            cycle: Any = self.cycle
            if cycle is None or cycle.response_complete:
                self.transport.abort()

    return TimedProtocol


def serve_witness(cosigner: Cosigner, listener: socket.socket) -> None:
    """Answer requests until SIGTERM (exit status 0) or SIGINT (exit status 130); requests in progress are answered.

    Raises:
        typer.Exit: SIGINT has stopped the server.
    """
    app = WitnessApp(cosigner)
    asyncio.run(create_server(app).serve(sockets=[listener]))
    if app.interrupted:
        raise typer.Exit(130)


def _error(status: HTTPStatus) -> Reply:
    return Reply(status, f"{status.phrase}\n")


async def _send_reply(send: Send, reply: Reply) -> None:
    body = reply.body.encode()
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if reply.status in {HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_TIMEOUT}:
        # The rest of the body is not read.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
