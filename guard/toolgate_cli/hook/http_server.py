"""A small HTTP server that answers one program of this machine: many questions at once, each for as long as it takes.

Whoever hangs up has taken the question back.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

#: what a tool was given and has answered; no more of it is read
LONGEST_BODY: Final = 32 * 1024 * 1024
_LONGEST_HEAD: Final = 16 * 1024
_READ: Final = 64 * 1024
#: seconds a question may take to arrive
_PATIENCE: Final = 10.0
_HOSTS: Final = ("127.0.0.1", "localhost")


class Reply(NamedTuple):
    """How a question is answered.

    Attributes:
        status: to Claude Code all but 200 is a failure.
        body: JSON.
    """

    status: HTTPStatus
    body: bytes = b""


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


class HookServer:
    """Listens on this machine alone.

    Args:
        answer: answers the body of a question, and is cancelled where nobody waits for it any more.
        path: the one path that is answered.
        secret: what is shown as a bearer token.
        port: the port; 0 takes a free one.
    """

    def __init__(
        self, answer: Callable[[bytes], Awaitable[Reply]], *, path: str, secret: str, port: int
    ) -> None:
        self._answer = answer
        self._path = path.encode()
        self._shown = b"Bearer " + secret.encode()
        self._asking: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = port

    async def open(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the port is taken, or cannot be had.
        """
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and take back what waits: who asked is hung up on."""
        if self._server is not None:
            self._server.close()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        # Of cancelling as well: the handler of a connection tells nobody how it ended.
        with suppress(OSError, asyncio.CancelledError):
            await self._exchange(reader, writer)
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_LONGEST_HEAD)
        reply: Reply | None
        try:
            async with asyncio.timeout(_PATIENCE):
                body = await self._asked(connection, reader)
            reply = await self._answered(reader, body)
        except _RefusedError as refused:
            reply = Reply(refused.status)
        except h11.RemoteProtocolError as error:
            reply = Reply(HTTPStatus(error.error_status_hint))
        except TimeoutError:
            reply = Reply(HTTPStatus.REQUEST_TIMEOUT)
        if reply is None or connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        async with asyncio.timeout(_PATIENCE):
            await _send(connection, writer, reply)

    async def _asked(self, connection: h11.Connection, reader: asyncio.StreamReader) -> bytes:
        body = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_READ))
            elif isinstance(event, h11.Request):
                self._look(event)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > LONGEST_BODY:
                    raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            elif isinstance(event, h11.EndOfMessage):
                return bytes(body)
            else:
                raise ConnectionError("hung up before it asked")

    def _look(self, request: h11.Request) -> None:
        """Refuse whoever is not the one program that is answered, before anything of the body is read."""
        headers = dict(request.headers)
        hosts = {f"{host}:{self.port}".encode() for host in _HOSTS}
        # A page in a browser says where it comes from, and reaches here by a name of its own at best.
        if headers.get(b"host") not in hosts or b"origin" in headers:
            raise _RefusedError(HTTPStatus.FORBIDDEN)
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._shown):
            raise _RefusedError(HTTPStatus.UNAUTHORIZED)
        if request.target != self._path:
            raise _RefusedError(HTTPStatus.NOT_FOUND)
        if request.method != b"POST":
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED)
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if int(headers.get(b"content-length", b"0")) > LONGEST_BODY:
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    async def _answered(self, reader: asyncio.StreamReader, body: bytes) -> Reply | None:
        """Return the answer; None where whoever asked has hung up before."""
        answer = asyncio.ensure_future(self._answer(body))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()
            gone.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)


async def _send(connection: h11.Connection, writer: asyncio.StreamWriter, reply: Reply) -> None:
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(reply.body))),
        ("Connection", "close"),
    ]
    for event in (
        h11.Response(status_code=reply.status, headers=headers, reason=reply.status.phrase),
        h11.Data(data=reply.body),
        h11.EndOfMessage(),
    ):
        writer.write(connection.send(event) or b"")
    await writer.drain()
