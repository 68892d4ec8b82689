"""HTTP server to which Claude Code's hooks send tool calls.

The server listens on 127.0.0.1 and requires a shared secret.

Claude Code blocks the tool for every status except 200. A response with status 200 and an empty body allows the tool,
so a response without a decision is never sent with status 200.
"""

import asyncio
import hmac
import os
import secrets
import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer
from platformdirs import user_state_path

from toolgate._files import Hint, PrivateFileError, read_private, write_private
from toolgate.errors import ConfigurationError
from toolgate_cli.asgi import Message, Receive, Send, receive_body
from toolgate_cli.hooks.claude_code import SECRET_VARIABLE, SERVER_PATH, server_url
from toolgate_cli.hooks.runner import error_location

if TYPE_CHECKING:
    from uvicorn import Server

#: maximum bytes of a request's body, which contains the input or the result of one tool call
MAX_BODY: Final = 32 * 1024 * 1024
_MAX_HEAD: Final = 16 * 1024
#: time limit in seconds to receive the head of a request; the same limit applies to the body
RECEIVE_SECONDS: Final = 10.0
_HOSTS: Final = ("127.0.0.1", "localhost")

_MIN_SECRET_LENGTH: Final = 32
_RESTART: Final = "start toolgate hook serve again"
_SECRET_HINT: Final = Hint(_RESTART, f"remove it, and {_RESTART}")


class Reply(NamedTuple):
    """Response to a hook.

    Attributes:
        status: HTTP status; every status except 200 blocks the tool.
        body: JSON, or empty.
    """

    status: HTTPStatus
    body: bytes = b""


class HookApp:
    """ASGI application that authenticates a hook's request, and passes its body to the function `answer`.

    `answer` is cancelled when the client disconnects or the server stops.

    Args:
        answer: function that returns the reply to the body of a request.
        secret: the expected bearer token.
        port: the port that the Host header of a request must contain.
        max_body: maximum bytes of a body.
        receive_seconds: time limit in seconds to receive the head of a request; the same limit applies to the body.
    """

    def __init__(
        self,
        answer: Callable[[bytes], Awaitable[Reply]],
        *,
        secret: str,
        port: int,
        max_body: int = MAX_BODY,
        receive_seconds: float = RECEIVE_SECONDS,
    ) -> None:
        self._answer = answer
        self._authorization = f"Bearer {secret}".encode()
        self._hosts = {f"{host}:{port}".encode() for host in _HOSTS}
        self._max_body = max_body
        self._exchanges: set[asyncio.Task[Reply | None]] = set()
        self.receive_seconds = receive_seconds
        #: addresses of the clients whose requests are being handled (from the arrival of the head to the end of the
        #: response)
        self.clients: set[tuple[str, int]] = set()
        #: whether the server was stopped by SIGINT
        self.interrupted = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        self.clients.add(scope["client"])
        try:
            status = self._check_head(scope)
            reply = Reply(status) if status is not None else await self._run(self._exchange(receive))
            if reply is not None:
                await _send_reply(send, reply)
        finally:
            self.clients.discard(scope["client"])

    async def cancel(self) -> None:
        """Stop handling all current requests; their clients receive status 503, which blocks the tool."""
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.cancel()
        await asyncio.gather(*exchanges, return_exceptions=True)

    async def _run(self, exchange: Any) -> Reply | None:
        task = asyncio.ensure_future(exchange)
        self._exchanges.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._exchanges.discard(task)
        return Reply(HTTPStatus.SERVICE_UNAVAILABLE) if task.cancelled() else task.result()

    def _check_head(self, scope: Message) -> HTTPStatus | None:
        """Check the request line and headers; return the HTTP status for an error, or None if they are valid."""
        headers = dict(scope["headers"])
        # A web page in the user's browser can send requests to this port by DNS rebinding. Such a request has an Origin
        # header, or a Host header with another host name.
        if headers.get(b"host") not in self._hosts or b"origin" in headers:
            return HTTPStatus.FORBIDDEN
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._authorization):
            return HTTPStatus.UNAUTHORIZED
        if scope["raw_path"] != SERVER_PATH.encode() or scope["query_string"]:
            return HTTPStatus.NOT_FOUND
        if scope["method"] != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        if int(headers.get(b"content-length", b"0")) > self._max_body:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return None

    async def _exchange(self, receive: Receive) -> Reply | None:
        """Receive the body of a request and return the reply, or None if the client has disconnected."""
        body = await receive_body(receive, self._max_body, self.receive_seconds)
        if not isinstance(body, bytes):
            return None if body is None else Reply(body)
        answer = asyncio.ensure_future(self._answer(body))
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({answer, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()
            disconnect.cancel()
            # A cancelled `answer` still cancels its approval request at the gateway. `gather` waits until this is done.
            await asyncio.gather(answer, disconnect, return_exceptions=True)


def create_server(app: HookApp) -> "Server":
    """Return a uvicorn server for a hook application."""
    # uvicorn is imported here, because an import at the top would take a quarter of the start time of other commands.
    from uvicorn import Config, Server
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class TimedProtocol(H11Protocol):
        """HTTP protocol that closes a connection if no request head arrives in time; uvicorn has no such limit."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
            super().connection_made(transport)
            client = transport.get_extra_info("peername")

            def close_idle() -> None:
                if client not in app.clients:
                    transport.abort()

            asyncio.get_running_loop().call_later(app.receive_seconds, close_idle)

    class HookServer(Server):
        """uvicorn server that cancels the handling of all requests when it stops."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
            # uvicorn's own method would also store the signal. uvicorn would raise the stored signal again after the
            # server has stopped, and the process would end before `_serve` has closed the SDK's client.
            self.should_exit = True
            app.interrupted = sig == signal.SIGINT

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for server in self.servers:
                server.close()
            await app.cancel()
            await super().shutdown(sockets)

    config = Config(
        app,
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        # With proxy headers, a client could forge the address that `HookApp` stores in `clients`.
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=_MAX_HEAD,
        timeout_graceful_shutdown=round(RECEIVE_SECONDS),
    )
    return HookServer(config)


def serve_hooks(hook: Any, secret: str, port: int) -> None:
    """Answer the requests of hooks on 127.0.0.1, until SIGTERM (exit status 0) or SIGINT (exit status 130).

    Raises:
        OSError: the port is not available.
        typer.Exit: SIGINT has stopped the server.
    """
    # While uvicorn runs, its own signal handlers are active. This handler applies before and after that.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.create_server(("127.0.0.1", port)) as listener:
        if asyncio.run(_serve(hook, secret, listener)):
            raise typer.Exit(130)


async def _serve(hook: Any, secret: str, listener: socket.socket) -> bool:
    """Answer the requests of hooks until the server is stopped; return whether SIGINT stopped it."""
    port = listener.getsockname()[1]

    async def answer(body: bytes) -> Reply:
        return await answer_hook(hook, body)

    app = HookApp(answer, secret=secret, port=port)
    server = create_server(app)
    # An earlier server may have ended before it logged the outcome of its calls. These calls are logged here, before
    # the server accepts requests, because handling a request could log the same call a second time.
    hook.asking.sweep()
    typer.echo(
        f"toolgate: listening for hooks of Claude Code at {server_url(port)}; stop with Ctrl-C", err=True
    )
    try:
        await server.serve(sockets=[listener])
    finally:
        await hook.asking.guard.aclose()
    return app.interrupted


async def answer_hook(hook: Any, body: bytes) -> Reply:
    """Return the hook's reply to the body of a request; every error becomes a status that blocks the tool."""
    try:
        async with asyncio.timeout(hook.limit):
            answer = await hook.aanswer(body)
        output = answer.stdout or b"{}"
    except ConfigurationError as error:
        typer.echo(f"toolgate: {error}", err=True)
        return Reply(HTTPStatus.UNPROCESSABLE_ENTITY)
    except TimeoutError:
        return Reply(HTTPStatus.GATEWAY_TIMEOUT)
    except Exception as error:  # noqa: BLE001 - an error must neither stop the server nor allow the tool
        typer.echo(
            "toolgate: a tool call was blocked, because the hook failed with an internal error: "
            f"{error_location(error)}",
            err=True,
        )
        return Reply(HTTPStatus.INTERNAL_SERVER_ERROR)
    if answer.code and not answer.stdout:
        # The hook has denied the call, but `output` is an empty object, which would allow the tool.
        return Reply(HTTPStatus.INTERNAL_SERVER_ERROR)
    return Reply(HTTPStatus.OK, output)


def secret_path() -> Path:
    """Return the path of the file that contains the server's secret."""
    return user_state_path("toolgate", appauthor=False) / "hook-secret"


def find_secret() -> str:
    """Return the server's secret from the environment variable, or else from its file.

    If the file does not exist, it is created with a new secret.

    Raises:
        PrivateFileError: the secret is too weak, or its file cannot be used.
    """
    if secret := os.environ.get(SECRET_VARIABLE):
        return _checked_secret(secret, SECRET_VARIABLE)
    path = secret_path()
    if read_private(path, hint=_SECRET_HINT) is None:
        write_private(path, f"{secrets.token_urlsafe(_MIN_SECRET_LENGTH)}\n".encode(), hint=_SECRET_HINT)
    # Two processes may create the file at the same time. Each process reads it again, so that both use the same secret.
    content = read_private(path, hint=_SECRET_HINT) or b""
    return _checked_secret(content.decode("ascii", "replace").strip(), repr(str(path)))


def secret_export() -> str:
    """Return the shell command that sets the secret in the environment from which Claude Code is started."""
    if os.environ.get(SECRET_VARIABLE):
        # The secret comes from the environment, so the file may not exist.
        return f"export {SECRET_VARIABLE}=…, with the value that the variable has in this shell"
    return f'export {SECRET_VARIABLE}="$(cat {shlex.quote(str(secret_path()))})"'


def _checked_secret(secret: str, source: str) -> str:
    # The secret is sent in a header, so it may contain only visible ASCII characters.
    if len(secret) < _MIN_SECRET_LENGTH or not all("!" <= char <= "~" for char in secret):
        raise PrivateFileError(
            f"{source} does not contain a valid secret: use at least {_MIN_SECRET_LENGTH} visible ASCII "
            f"characters, or remove {source}"
        )
    return secret


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_reply(send: Send, reply: Reply) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(reply.body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
