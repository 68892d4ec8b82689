"""The deadline of asynchronous requests in an event loop that a tool blocks."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.certificates import certificate_for
from support.http_libraries import LIBRARIES

from toolgate import ActionDenied, Guard
from toolgate._http.exchange import AsyncDeadline

KEY = "ak_" + "k3y" * 12 + "z"
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no", "approval_id": None}
BODY = json.dumps(BLOCKED).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)
TIMEOUT = 0.5
never = threading.Event()


class Holdup:
    """Holds the loop up from when the gateway was asked until it has answered and the time is over."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.asked = threading.Event()
        self.held = threading.Event()
        self.answered = threading.Event()

    def answer(self, connection: socket.socket) -> None:
        if not self.asked.is_set():
            self.asked.set()
            self.held.wait(10)
        connection.sendall(ANSWER)
        self.answered.set()

    async def hold(self) -> None:
        while not self.asked.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0)
        self.held.set()
        self.answered.wait(10)
        never.wait(self.began + 2 * TIMEOUT - time.monotonic())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("secure", [False, True])
async def test_response_that_arrives_while_the_loop_is_blocked_is_read(
    peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, secure: bool
) -> None:
    """A denied tool does not run, although the deadline passed before the loop could read the response."""
    monkeypatch.setenv("TOOLGATE_HTTP", library)
    tls = None
    if secure:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate_for("localhost", tmp_path))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    holdup, ran = Holdup(), list[str]()
    async with Guard(peer(holdup.answer, tls=tls).url, KEY, "held-up", timeout=TIMEOUT) as guard:

        @guard.guarded("a.b", fail_open=True)
        async def tool() -> None:
            ran.append("ran")

        holdup.began = time.monotonic()
        found, _ = await asyncio.gather(tool(), holdup.hold(), return_exceptions=True)
    assert ran == []
    assert isinstance(found, ActionDenied)


async def test_deadline_raises_timeout_error() -> None:

    async def wait() -> None:
        async with AsyncDeadline(0.01):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()
    async with AsyncDeadline(30):
        pass


async def test_cancellation_is_not_a_time_out() -> None:

    async def wait() -> None:
        async with AsyncDeadline(30):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
