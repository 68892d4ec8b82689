"""Tools of calls that fail open, with real sockets: they run only if no connection to a gateway was established."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.ports import refusing_port

from toolgate import GatewayUnavailable, Guard
from toolgate._http.exchange import Exchange

KEY = "ak_" + "k3y" * 12 + "z"


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def answer(status: int, headers: bytes = b"") -> Callable[[socket.socket], None]:
    head = b"HTTP/1.1 %d Unavailable\r\n%sContent-Length: 0\r\n\r\n" % (status, headers)
    return lambda connection: connection.sendall(head)


def has_run(url: str, kind: str, outbox: Path, *, calls: int = 1) -> bool:
    """Return whether the tool of a call that fails open runs, in any of `calls` calls of new guards."""
    ran: list[int] = []
    for number in range(calls):
        with Guard(url, KEY, "agent", timeout=1, outbox=outbox, allow_insecure=True) as guard:
            try:
                if kind == "async":

                    @guard.guarded("a.b", fail_open=True)
                    async def tool(n: int) -> None:
                        ran.append(n)

                    asyncio.run(tool(number))
                else:
                    guard.guarded("a.b", fail_open=True)(ran.append)(number)
            except GatewayUnavailable:
                continue
    return bool(ran)


@pytest.fixture
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Its entries cannot be sent: a short end for the guards.
    monkeypatch.setenv("TOOLGATE_OUTBOX_FLUSH_TIMEOUT", "0")
    return tmp_path / "outbox"


# CPython's `SSLSocket` leaves a socket open whose connection was reset before the handshake.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize(
    ("scheme", "host", "kind"),
    [
        ("http", "127.0.0.1", "sync"),
        ("https", "localhost", "async"),
        *[
            pytest.param(scheme, host, kind, marks=pytest.mark.slow)
            for scheme, host, kind in [
                ("http", "127.0.0.1", "async"),
                ("http", "localhost", "sync"),
                ("http", "localhost", "async"),
                ("https", "127.0.0.1", "sync"),
                ("https", "127.0.0.1", "async"),
                ("https", "localhost", "sync"),
            ]
        ],
    ],
)
def test_tool_does_not_run_after_a_reset_right_after_accept(
    peer: Any, outbox: Path, scheme: str, host: str, kind: str
) -> None:
    """With localhost there may be two addresses, of which the first one refuses the connection."""
    port = peer(reset, at_once=True).port
    assert not has_run(f"{scheme}://{host}:{port}", kind, outbox, calls=3)
    gc.collect()


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    "misbehaviour",
    [
        pytest.param(reset, id="reset-after-request"),
        pytest.param(answer(504), id="proxy-504"),
        pytest.param(answer(504, b"X-API-Version: 2026-11-20\r\n"), id="gateway-504"),
        pytest.param(answer(500), id="500"),
    ],
)
def test_tool_does_not_run_after_the_request_was_received(
    peer: Any, outbox: Path, misbehaviour: Any, kind: str
) -> None:
    assert not has_run(peer(misbehaviour).url, kind, outbox)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("status", [502, 503])
def test_tool_runs_if_a_proxy_has_no_gateway_behind_it(
    peer: Any, outbox: Path, status: int, kind: str
) -> None:
    assert has_run(peer(answer(status)).url, kind, outbox)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_tool_runs_if_the_connection_is_refused(outbox: Path, host: str, kind: str) -> None:
    with refusing_port() as port:
        assert has_run(f"http://{host}:{port}", kind, outbox)


@pytest.mark.parametrize(
    ("cause", "reached"),
    [
        (ConnectionResetError(), True),
        (ConnectionAbortedError(), True),
        (BrokenPipeError(), True),
        (OSError(errno.ENOTCONN, "not connected"), True),
        (ConnectionRefusedError(), False),
        (OSError(errno.EHOSTUNREACH, "no route"), False),
        (ExceptionGroup("two addresses", [ConnectionRefusedError(), ConnectionResetError()]), True),
        (ExceptionGroup("two addresses", [ConnectionRefusedError(), ConnectionRefusedError()]), False),
    ],
)
def test_cause_of_a_failed_connection_decides_whether_it_was_established(
    cause: Exception, reached: bool
) -> None:
    error = httpx.ConnectError("failed")
    error.__cause__ = cause
    exchange = Exchange(httpx)
    exchange.trace("connection.connect_tcp.started", {})
    assert exchange.failure(error).reached is reached


@pytest.mark.parametrize("kind", [httpx.ConnectError, httpx.ConnectTimeout])
def test_failed_connection_without_trace_events_may_have_been_established(kind: Any) -> None:
    """Another version of httpx may report other events: then it is unknown whether the error is one of TLS."""
    assert Exchange(httpx).failure(kind("failed")).reached
    assert not Exchange(httpx, traced=False).failure(kind("failed")).reached
