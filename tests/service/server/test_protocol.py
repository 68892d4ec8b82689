"""Requests whose client closes the connection before the application has read the body."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState

from toolgate_service.core.settings import Settings
from toolgate_service.http.body_limit import bounded
from toolgate_service.http.responses import ResponseHeaders
from toolgate_service.server.protocol import GatewayProtocol, Limits

HEAD = b"POST /sdk/logs HTTP/1.1\r\nHost: gateway\r\n"
DISCONNECT = {"type": "http.disconnect"}


class Server:
    """A server whose application reads nothing until `read` is called."""

    def __init__(self) -> None:
        self.state = ServerState()
        self.begun = asyncio.Event()
        self.may_read = asyncio.Event()
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        config = uvicorn.Config(self._serve, interface="asgi3", log_config=None, ws="none", lifespan="off")
        config.load()
        limits = Limits(seconds=30, connections=10, headers=ResponseHeaders.of(Settings()))
        self.protocol = partial(GatewayProtocol, limits, config, self.state, {})

    async def _serve(self, scope: Scope, receive: Receive, _send: Send) -> None:
        receiving = bounded(scope, dict(scope["headers"]), receive)
        self.begun.set()
        await self.may_read.wait()
        while True:
            message = await receiving()
            self.messages.put_nowait(message)
            if message["type"] == "http.disconnect":
                return

    async def read(self) -> list[Message]:
        """Let the application read; return the messages up to the disconnect."""
        self.may_read.set()
        messages: list[Message] = []
        async with asyncio.timeout(30):
            while DISCONNECT not in messages:
                messages.append(await self.messages.get())
        return messages

    async def send(self, port: int, *parts: bytes) -> None:
        """Send the parts one after the other, close the connection, and wait until the server has noticed it."""
        async with asyncio.timeout(30):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for part in parts:
                writer.write(part)
                await self.begun.wait()
            writer.close()
            while self.state.connections:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    server = Server()
    listening = await asyncio.get_running_loop().create_server(server.protocol, "127.0.0.1", 0)
    async with listening:
        yield server, listening.sockets[0].getsockname()[1]


def whole(body: bytes) -> list[Message]:
    return [{"type": "http.request", "body": body, "more_body": False}, DISCONNECT]


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ((b"Content-Length: 4\r\n\r\nbody",), b"body"),
        ((b"Content-Length: 4\r\n\r\nbo", b"dy"), b"body"),
        ((b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",), b"body"),
        ((b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n", b"2\r\ndy\r\n0\r\n\r\n"), b"body"),
        ((b"Content-Length: 0\r\n\r\n",), b""),
        ((b"\r\n",), b""),
    ],
)
async def test_complete_body_is_read_after_the_disconnect(
    server: tuple[Server, int], parts: tuple[bytes, ...], body: bytes
) -> None:
    served, port = server
    await served.send(port, HEAD + parts[0], *parts[1:])
    assert await served.read() == whole(body)


@pytest.mark.parametrize(
    "parts",
    [
        (b"Content-Length: 5\r\n\r\nbody",),
        (b"Content-Length: 5\r\n\r\n",),
        (b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",),
        (b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", b"0\r\n"),
    ],
)
async def test_incomplete_body_is_not_read_after_the_disconnect(
    server: tuple[Server, int], parts: tuple[bytes, ...]
) -> None:
    served, port = server
    await served.send(port, HEAD + parts[0], *parts[1:])
    assert await served.read() == [DISCONNECT]


async def test_body_that_was_read_is_not_read_again(server: tuple[Server, int]) -> None:
    served, port = server
    served.may_read.set()
    async with asyncio.timeout(30):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 4\r\n\r\nbody")
        assert await served.messages.get() == whole(b"body")[0]
        writer.close()
        assert await served.messages.get() == DISCONNECT
