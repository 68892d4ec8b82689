"""Which failures are an outage, with real sockets."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from support.certificates import certificate_for
from support.http_libraries import LIBRARIES_AND_KINDS
from support.ports import refusing_port

from toolgate import Decision, GatewayProtocolError, GatewayUnavailable
from toolgate._http.client import AsyncGatewayClient, GatewayClient
from toolgate._http.exchange import Request, TransportError
from toolgate._http.transport import AsyncHttpSender, HttpSender
from toolgate._identity import Identity
from toolgate._models import Check
from toolgate._settings import Settings

KEY = "ak_" + "k3y" * 12 + "z"
CHECK = Check("a.b", Identity("agent"), {})
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n"
NONE_BEHIND = b"HTTP/1.1 %d No\r\n%sContent-Length: 2\r\n\r\nno"
OURS = b"X-API-Version: 2026-11-20\r\n"

pytestmark = pytest.mark.parametrize(("library", "kind"), LIBRARIES_AND_KINDS)


class Haste:
    """A clock that runs as clocks do, and jumps over every pause."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def clock(self) -> float:
        return time.monotonic() + self._skipped

    def sleep(self, seconds: float) -> None:
        self._skipped += seconds

    async def asleep(self, seconds: float) -> None:
        self._skipped += seconds


async def asked(url: str, library: str, kind: str, seconds: float) -> Decision:
    settings, check, haste = Settings(url, KEY, "agent", seconds, library), CHECK, Haste()
    if kind == "sync":
        client = GatewayClient(settings, clock=haste.clock, sleep=haste.sleep)
        try:
            return client.check(check)
        finally:
            client.close()
    other = AsyncGatewayClient(settings, clock=haste.clock, sleep=haste.asleep)
    try:
        return await other.check(check)
    finally:
        await other.aclose()


async def failure(url: str, library: str, kind: str, seconds: float = 10) -> GatewayUnavailable:
    """What a check says that gets no whole answer at `url`."""
    with pytest.raises(GatewayUnavailable) as raised:
        await asked(url, library, kind, seconds)
    return raised.value


def says(*parts: bytes) -> Any:
    """A peer that says this and hangs up."""

    def answer(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_RDWR)

    return answer


def resets(connection: socket.socket) -> None:
    """A peer that ends the connection at once, throwing away what was sent to it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def silent(_: socket.socket) -> None:
    """A peer that says nothing."""


async def test_refused_connection_is_an_outage(library: str, kind: str) -> None:
    with refusing_port() as port:
        assert not (await failure(f"http://127.0.0.1:{port}", library, kind)).answered


async def test_request_that_was_sent_may_have_been_received(peer: Any, library: str, kind: str) -> None:
    """The peer accepts it and then sends nothing, or ends the connection."""
    for misbehaviour in (silent, resets, says(), says(NONE_BEHIND % (504, b""))):
        error = await failure(peer(misbehaviour).url, library, kind, 0.3)
        assert (error.answered, error.reached) == (False, True)


# CPython's `SSLSocket` leaves a socket open whose connection was reset before the handshake.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_connection_that_is_reset_at_once_was_established(
    peer: Any, library: str, kind: str, scheme: str
) -> None:
    """The reset may come while the client still waits for its connection, so that connecting itself fails."""
    url = peer(resets, at_once=True).url.replace("http", scheme)
    found = [await failure(url, library, kind, 0.15) for _ in range(15)]
    assert {(error.answered, error.reached) for error in found} == {(False, True)}
    del found
    gc.collect()


async def test_connection_that_is_not_established_was_not_received(library: str, kind: str) -> None:
    """A refused connection, and a host whose queue of connections is full, so that connecting takes too long."""
    with refusing_port() as port:
        assert not (await failure(f"http://127.0.0.1:{port}", library, kind)).reached
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        error = await failure(f"http://127.0.0.1:{address[1]}", library, kind, 0.3)
        for one in waiting:
            one.close()
    assert (error.answered, error.reached) == (False, False)


async def test_handshake_that_takes_too_long_may_be_an_overloaded_gateway(
    peer: Any, library: str, kind: str
) -> None:
    """The kernel accepts connections for a gateway that does not get round to their handshakes."""
    url = peer(silent).url.replace("http:", "https:")
    error = await failure(url, library, kind, 1.0)
    assert (error.answered, error.reached) == (False, True)


async def test_unknown_host_is_an_outage(library: str, kind: str) -> None:
    assert not (await failure("https://gateway.invalid", library, kind)).answered


@pytest.mark.parametrize(
    ("misbehaviour", "answered"),
    [
        pytest.param(says(), False, id="hangs up"),
        pytest.param(says(b"HTTP/1.1 200 OK\r\nConte"), False, id="dies within the head"),
        pytest.param(says(NONE_BEHIND % (502, b"")), False, id="a proxy's 502"),
        pytest.param(says(NONE_BEHIND % (503, b"")), False, id="a proxy's 503"),
        pytest.param(says(NONE_BEHIND % (504, b"")), False, id="a proxy's 504"),
        pytest.param(says(NONE_BEHIND % (503, OURS)), True, id="the gateway's own 503"),
        pytest.param(says(NONE_BEHIND % (500, b"")), True, id="a 500"),
        pytest.param(says(NONE_BEHIND % (429, b"")), True, id="a 429"),
        pytest.param(says(HEAD, b"{"), True, id="dies within the answer"),
        pytest.param(says(b"SSH-2.0-OpenSSH_9.7\r\n\r\n"), True, id="speaks something else"),
        pytest.param(says(HEAD[:-4] + b"0" * 8 + b"\r\n\r\n" + b"x" * 5_000_000), True, id="too long"),
    ],
)
async def test_incomplete_response_is_a_response(
    peer: Any, library: str, kind: str, misbehaviour: Any, answered: bool
) -> None:
    assert (await failure(peer(misbehaviour).url, library, kind)).answered is answered


def serving(folder: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate_for(name, folder))
    return context


@pytest.mark.parametrize("name", ["localhost", "elsewhere.example"])
async def test_untrusted_certificate_is_a_response(
    peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, kind: str, name: str
) -> None:
    """Its issuer is unknown, or it is for another name."""
    tls = serving(tmp_path, name)
    if name != "localhost":
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    error = await failure(peer(silent, tls=tls).url, library, kind)
    assert error.answered
    assert "certificate verify failed" in str(error).lower()


async def test_missing_client_certificate_is_a_response(
    peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, kind: str
) -> None:
    """TLS 1.3 reports it only after the handshake."""
    tls = serving(tmp_path, "localhost")
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(tmp_path / "certificate.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    assert (await failure(peer(silent, tls=tls).url, library, kind)).answered


async def test_connection_that_ends_right_after_the_handshake_is_a_response(
    peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, kind: str
) -> None:
    """The alert that rejects the client may be lost with the connection."""
    tls = serving(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    error = await failure(peer(resets, tls=tls, at_once=True).url, library, kind)
    assert error.answered
    assert "client certificate" in str(error)


async def test_tls_connection_that_breaks_in_a_later_request_is_an_outage(
    peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, kind: str
) -> None:
    """It is not a rejection of the client, which would come with the first request."""
    tls = serving(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    body = b'{"allowed":true,"requires_approval":false,"reason":null,"approval_id":null}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    seen: list[socket.socket] = []

    def serve_once(connection: socket.socket) -> None:
        seen.append(connection)
        if len(seen) == 1:
            connection.sendall(head + body)
        else:
            resets(connection)

    server = peer(serve_once, tls=tls)
    request = Request("POST", server.url + "/sdk/check", {}, b"{}")
    if kind == "sync":
        wire = HttpSender(server.url, library)
        assert wire.send(request, 10).status == 200
        with pytest.raises(TransportError) as raised:
            wire.send(request, 10)
        wire.close()
    else:
        other = AsyncHttpSender(server.url, library)
        assert (await other.send(request, 10)).status == 200
        with pytest.raises(TransportError) as raised:
            await other.send(request, 10)
        await other.aclose()
    assert seen[0] is seen[1]
    assert (raised.value.answered, raised.value.reached) == (False, True)


@pytest.mark.parametrize(
    ("misbehaviour", "answered"),
    [
        pytest.param(says(), False, id="hangs up"),
        pytest.param(says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), True, id="speaks no TLS"),
    ],
)
async def test_failed_handshake(
    peer: Any, library: str, kind: str, misbehaviour: Any, answered: bool
) -> None:
    """A connection that ends during the handshake is an outage; a peer that does not use TLS has responded."""
    server = peer(misbehaviour, at_once=True)
    assert (await failure(f"https://localhost:{server.port}", library, kind)).answered is answered


async def test_page_of_another_server_is_a_protocol_error(peer: Any, library: str, kind: str) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"
    with pytest.raises(GatewayProtocolError):
        await asked(peer(says(page)).url, library, kind, 10)
