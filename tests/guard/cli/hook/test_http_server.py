"""The server behind `toolgate hook serve`: whom it answers, and what it does with everybody else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from toolgate import ConfigurationError
from toolgate_cli.hook.http_server import HookServer, Reply
from toolgate_cli.hook.serve import answered

SHOWN = {"Authorization": "Bearer the-secret", "Content-Type": "application/json"}


class Asked:
    """What the server handed on, and how it is answered."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.answer: Callable[[], Awaitable[Reply]] | None = None

    async def __call__(self, body: bytes) -> Reply:
        self.bodies.append(body)
        return Reply(HTTPStatus.OK, b"{}") if self.answer is None else await self.answer()


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
async def server(asked: Asked) -> AsyncIterator[HookServer]:
    made = HookServer(asked, path="/claude-code", secret="the-secret", port=0)
    await made.open()
    yield made
    await made.close()


async def ask(server: HookServer, method: str = "POST", path: str = "/claude-code", **sent: Any) -> int:
    headers = {**SHOWN, **sent.pop("headers", {})}
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.request(
            method,
            f"http://127.0.0.1:{server.port}{path}",
            headers={name: value for name, value in headers.items() if value},
            **{"content": b"{}", **sent},
        )
    return answer.status_code


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
async def test_who_is_answered(server: HookServer, asked: Asked, sent: dict[str, Any], status: int) -> None:
    """The one program that has the secret, on this machine; no page in a browser, nobody who only knows the port."""
    assert await ask(server, **sent) == status
    assert len(asked.bodies) == (status == 200)


@pytest.mark.parametrize(
    "sent",
    [
        b"nothing of HTTP\r\n\r\n",
        b"POST /claude-code HTTP/1.1\r\n\r\n",
        b"POST /claude-code HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /claude-code HTTP/1.1\r\nX: " + b"x" * 100_000,
    ],
)
async def test_what_is_no_request_is_a_failure(server: HookServer, asked: Asked, sent: bytes) -> None:
    """Whatever comes, the answer is no yes, and the server lives on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    assert (await reader.readline()).startswith(b"HTTP/1.1 4")
    writer.close()
    assert await ask(server) == 200
    assert len(asked.bodies) == 1


@pytest.mark.parametrize("length", [b"Content-Length: %d", b"Transfer-Encoding: chunked\r\nX-Of: %d"])
async def test_too_much_is_not_read(
    server: HookServer, asked: Asked, monkeypatch: pytest.MonkeyPatch, length: bytes
) -> None:
    """Said before or found out, more than a tool's input can be is a failure."""
    monkeypatch.setattr("toolgate_cli.hook.http_server.LONGEST_BODY", 100)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    shown = "".join(f"{name}: {value}\r\n" for name, value in SHOWN.items())
    head = f"POST /claude-code HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{shown}".encode()
    writer.write(head + length % 1000 + b"\r\n\r\n3e8\r\n" + b"x" * 1000)
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()
    assert asked.bodies == []


async def test_who_sends_half_of_it_is_not_waited_for(
    server: HookServer, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that does not arrive in time is a failure, and one that is broken off is none."""
    monkeypatch.setattr("toolgate_cli.hook.http_server._PATIENCE", 0.1)
    head = f"POST /claude-code HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head)
    assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head)
    writer.close()
    assert await ask(server) == 200
    assert len(asked.bodies) == 1


async def test_closed_it_hangs_up_on_who_waits(server: HookServer, asked: Asked) -> None:
    """And what waits is cancelled, by which a request is withdrawn."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def forever() -> Reply:
        begun.set()
        try:
            return await asyncio.Future()
        finally:
            ended.set()

    asked.answer = forever
    asking = asyncio.ensure_future(ask(server))
    await begun.wait()
    await server.close()
    assert ended.is_set()
    with pytest.raises(httpx.RemoteProtocolError):
        await asking


async def hook(does: Callable[[], Any], limit: float = 30) -> Reply:
    async def aanswer(_: bytes) -> Any:
        result = does()
        return await result if isinstance(result, asyncio.Future) else result

    return await answered(SimpleNamespace(limit=limit, aanswer=aanswer), b"{}")


def fails(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


async def test_whatever_happens_inside_is_no_yes(capsys: pytest.CaptureFixture[str]) -> None:
    """No error is taken for a yes, and none quotes a secret; an empty no is one: to Claude Code it would be a yes."""
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
    assert "RuntimeError (test_http_server.py:" in written
    assert "a secret" not in written
