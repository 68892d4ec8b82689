"""HTTP server of a witness: paths, limits of size and time, and errors."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from support.transparency_logs import SignedLog

from toolgate_cli.witness.cosigner import Cosigner, hash_origin
from toolgate_cli.witness.server import MAX_BODY, WitnessApp, create_server


@asynccontextmanager
async def serving(cosigner: Cosigner, **limits: Any) -> AsyncIterator[int]:
    """Serve in the test's own event loop, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = create_server(WitnessApp(cosigner, **limits))
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def ask(
    cosigner: Cosigner, method: str, path: str, content: Any = b"", **limits: Any
) -> httpx.Response:
    async with serving(cosigner, **limits) as port, httpx.AsyncClient(trust_env=False) as client:
        return await client.request(method, f"http://127.0.0.1:{port}{path}", content=content)


async def test_checkpoint_is_cosigned_over_http(cosigner: Cosigner, log: SignedLog) -> None:
    async with serving(cosigner) as port, httpx.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{port}"
        cosigned = await client.post(f"{url}/add-checkpoint", content=log.request(0, 3))
        assert (cosigned.status_code, cosigned.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        conflict = await client.post(f"{url}/add-checkpoint", content=log.request(0, 9))
        assert (conflict.status_code, conflict.content) == (409, b"3\n")
        assert conflict.headers["content-type"] == "text/x.tlog.size"
        latest = await client.get(f"{url}/{hash_origin(log.origin)}/checkpoint")
        assert (latest.status_code, latest.text) == (200, log.checkpoint(3) + cosigned.text)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/add-checkpoint", 405),
        ("PUT", "/add-checkpoint", 405),
        ("POST", "/add-checkpoint/", 404),
        ("POST", "/add-checkpoint", 400),
        ("POST", f"/{hash_origin('x')}/checkpoint", 405),
        ("GET", f"/{hash_origin('x')}/checkpoint", 404),
        ("GET", f"/{hash_origin('x').upper()}/checkpoint", 404),
    ],
)
async def test_other_requests_have_their_status(
    cosigner: Cosigner, method: str, path: str, status: int
) -> None:
    assert (await ask(cosigner, method, path)).status_code == status


async def test_body_of_the_maximum_size_is_read(cosigner: Cosigner) -> None:
    assert (await ask(cosigner, "POST", "/add-checkpoint", b"x" * MAX_BODY)).status_code == 400


async def test_larger_body_is_rejected(cosigner: Cosigner) -> None:
    """Both with a length in the head of the request, and in chunks."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 6
        yield b"x" * 6

    for content in (b"x" * 12, chunks()):
        reply = await ask(cosigner, "POST", "/add-checkpoint", content, max_body=10)
        assert (reply.status_code, reply.headers["connection"]) == (413, "close")


async def test_slow_body_is_a_timeout(cosigner: Cosigner) -> None:
    async with serving(cosigner, receive_seconds=0.1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /add-checkpoint HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nold")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"POST /add-checkpoint HTTP/1.1\r\nHost:"])
async def test_connection_without_a_complete_head_is_closed(cosigner: Cosigner, sent: bytes) -> None:
    async with serving(cosigner, receive_seconds=0.1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()


async def test_second_head_on_a_connection_has_the_same_time_limit(cosigner: Cosigner) -> None:
    async with serving(cosigner, receive_seconds=0.3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 404 ")
        writer.write(b"GET / HTTP/1.1\r\nHost:")
        assert (await reader.read()).endswith(b"\r\n\r\nNot Found\n")
        writer.close()


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk is full"), RuntimeError("a secret")])
async def test_failure_of_the_state_is_an_error_without_details(
    cosigner: Cosigner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(_: bytes) -> None:
        raise error

    monkeypatch.setattr(cosigner, "add_checkpoint", fail)
    reply = await ask(cosigner, "POST", "/add-checkpoint")
    assert (reply.status_code, reply.text) == (500, "Internal Server Error\n")
    printed = capsys.readouterr().err
    assert printed.startswith("toolgate: ")
    assert ("disk is full" in printed, "secret" in printed) == (isinstance(error, sqlite3.Error), False)


async def test_client_that_disconnects_is_ignored(cosigner: Cosigner, log: SignedLog) -> None:
    async with serving(cosigner) as port, httpx.AsyncClient(trust_env=False) as client:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /add-checkpoint HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nold")
        writer.transport.abort()
        reply = await client.post(f"http://127.0.0.1:{port}/add-checkpoint", content=log.request(0, 3))
        assert reply.status_code == 200
