"""The HTTP server of `toolgate hook serve`: authentication, limits, cancellation and errors."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn

from toolgate import ConfigurationError
from toolgate_cli.hooks.server import HookApp, Reply, answer_hook, create_server

HEADERS = {"Authorization": "Bearer the-secret", "Content-Type": "application/json"}


class RecordedAnswers:
    """Answers calls, and records their bodies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.answer: Callable[[], Awaitable[Reply]] | None = None

    async def __call__(self, body: bytes) -> Reply:
        self.bodies.append(body)
        return Reply(HTTPStatus.OK, b"{}") if self.answer is None else await self.answer()


@dataclass
class Running:
    """A server that runs in the test's own event loop."""

    port: int
    app: HookApp
    server: uvicorn.Server
    task: "asyncio.Task[None]"

    async def stop(self) -> None:
        self.server.should_exit = True
        await self.task


@asynccontextmanager
async def running(answer: RecordedAnswers, **limits: Any) -> AsyncIterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        app = HookApp(answer, secret="the-secret", port=port, **limits)
        server = create_server(app)
        made = Running(port, app, server, asyncio.ensure_future(server.serve(sockets=[listener])))
        try:
            yield made
        finally:
            await made.stop()


@pytest.fixture
def calls() -> RecordedAnswers:
    return RecordedAnswers()


@pytest.fixture
async def server(calls: RecordedAnswers) -> AsyncIterator[Running]:
    async with running(calls) as made:
        yield made


async def ask(server: Running, method: str = "POST", path: str = "/claude-code", **sent: Any) -> int:
    headers = {**HEADERS, **sent.pop("headers", {})}
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.request(
            method,
            f"http://127.0.0.1:{server.port}{path}",
            headers={name: value for name, value in headers.items() if value},
            **{"content": b"{}", **sent},
        )
    return answer.status_code


async def connect(server: Running, *headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the beginning of an authorized request, without the end of its head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    own = [f"{name}: {value}" for name, value in HEADERS.items()]
    lines = ["POST /claude-code HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *own, *headers]
    writer.write("".join(f"{line}\r\n" for line in lines).encode())
    return reader, writer


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 200),
        ({"headers": {"Authorization": ""}}, 401),
        ({"headers": {"Authorization": "Bearer another"}}, 401),
        ({"headers": {"Authorization": "the-secret"}}, 401),
        ({"headers": {"Origin": "http://127.0.0.1"}}, 403),
        ({"headers": {"Origin": "null"}}, 403),
        ({"headers": {"Host": "rebound.example.com"}}, 403),
        ({"headers": {"Host": "127.0.0.1"}}, 403),
        ({"headers": {"Content-Type": "text/plain"}}, 415),
        ({"path": "/"}, 404),
        ({"path": "/claude-code?a=b"}, 404),
        ({"method": "GET"}, 405),
        ({"method": "OPTIONS"}, 405),
    ],
)
async def test_only_authorized_local_requests_are_answered(
    server: Running, calls: RecordedAnswers, sent: dict[str, Any], status: int
) -> None:
    """A web page in a browser, and a program that only knows the port, are refused before the body is read."""
    assert await ask(server, **sent) == status
    assert len(calls.bodies) == (status == 200)


@pytest.mark.parametrize(
    "sent",
    [
        b"nothing of HTTP\r\n\r\n",
        b"POST /claude-code HTTP/1.1\r\n\r\n",
        b"POST /claude-code HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /claude-code HTTP/1.1\r\nX: " + b"x" * 100_000,
    ],
)
async def test_malformed_requests_are_errors(server: Running, calls: RecordedAnswers, sent: bytes) -> None:
    """And the server goes on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    assert (await reader.readline()).startswith(b"HTTP/1.1 4")
    writer.close()
    assert await ask(server) == 200
    assert len(calls.bodies) == 1


@pytest.mark.parametrize("length", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
async def test_long_bodies_are_refused(calls: RecordedAnswers, length: str) -> None:
    """Whether their length is declared or not."""
    async with running(calls, max_body=100) as server:
        reader, writer = await connect(server, length)
        writer.write(b"\r\n3e8\r\n" + b"x" * 1000)
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        writer.close()
    assert calls.bodies == []


async def test_a_body_that_does_not_arrive_in_time_is_refused(calls: RecordedAnswers) -> None:
    async with running(calls, receive_seconds=0.1) as server:
        reader, writer = await connect(server, "Content-Length: 10")
        writer.write(b"\r\n{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()
        assert await ask(server) == 200
    assert calls.bodies == [b"{}"]


@pytest.mark.parametrize("sent", [b"", b"POST /claude-code HTTP/1.1\r\nHost: a\r\n"])
async def test_a_head_that_does_not_arrive_in_time_ends_the_connection(
    calls: RecordedAnswers, sent: bytes
) -> None:
    async with running(calls, receive_seconds=0.1) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert await ask(server) == 200
    assert len(calls.bodies) == 1


async def test_the_limit_of_the_head_does_not_end_a_call_that_waits(calls: RecordedAnswers) -> None:
    async def answer() -> Reply:
        # The limit's timer started earlier in the same loop, so it ends before this one.
        elapsed = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, elapsed.set)
        await elapsed.wait()
        return Reply(HTTPStatus.OK, b"{}")

    calls.answer = answer
    async with running(calls, receive_seconds=0.1) as server:
        assert await ask(server) == 200


async def test_an_interrupted_request_is_not_a_call(server: Running, calls: RecordedAnswers) -> None:
    _, writer = await connect(server, "Content-Length: 10")
    writer.write(b"\r\n{")
    await writer.drain()
    writer.close()
    assert await ask(server) == 200
    assert len(calls.bodies) == 1


async def test_a_client_that_disconnects_cancels_its_call(server: Running, calls: RecordedAnswers) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()
    calls.answer = wait_forever(started, cancelled)
    _, writer = await connect(server, "Content-Length: 2")
    writer.write(b"\r\n{}")
    await started.wait()
    writer.close()
    await asyncio.wait_for(cancelled.wait(), 30)


async def test_a_server_that_stops_cancels_waiting_calls(server: Running, calls: RecordedAnswers) -> None:
    """Their clients get an error, which blocks the tool."""
    started, cancelled = asyncio.Event(), asyncio.Event()
    calls.answer = wait_forever(started, cancelled)
    asking = asyncio.ensure_future(ask(server))
    await started.wait()
    await server.stop()
    assert cancelled.is_set()
    assert await asking == 503


def wait_forever(started: asyncio.Event, cancelled: asyncio.Event) -> Callable[[], Awaitable[Reply]]:
    async def answer() -> Reply:
        started.set()
        try:
            return await asyncio.Future()
        finally:
            cancelled.set()

    return answer


async def hook(does: Callable[[], Any], limit: float = 30) -> Reply:
    async def aanswer(_: bytes) -> Any:
        result = does()
        return await result if isinstance(result, asyncio.Future) else result

    return await answer_hook(SimpleNamespace(limit=limit, aanswer=aanswer), b"{}")


def fails(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


async def test_errors_block_the_tool(capsys: pytest.CaptureFixture[str]) -> None:
    """And none prints a secret. A denial without text is an error too: Claude Code would run the tool."""
    for does in (fails(RuntimeError("a secret")), fails(RecursionError()), lambda: None):
        assert (await hook(does)).status == 500
    assert (await hook(fails(ConfigurationError("tell me")))).status == 422
    assert (await hook(asyncio.get_running_loop().create_future, limit=0.01)).status == 504
    assert await hook(lambda: SimpleNamespace(code=2, stdout=b"")) == Reply(HTTPStatus.INTERNAL_SERVER_ERROR)
    assert await hook(lambda: SimpleNamespace(code=2, stdout=b'{"a": 1}')) == Reply(
        HTTPStatus.OK, b'{"a": 1}'
    )
    assert await hook(lambda: SimpleNamespace(code=0, stdout=b"")) == Reply(HTTPStatus.OK, b"{}")
    written = capsys.readouterr().err
    assert "tell me" in written
    assert "RuntimeError (test_server.py:" in written
    assert "a secret" not in written
