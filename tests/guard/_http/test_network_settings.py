"""Private certificates, client certificates, proxies and transports, with real sockets."""

from __future__ import annotations

import importlib
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.certificates import certificate_for
from support.http_libraries import LIBRARIES
from support.tunnel import Tunnel

from toolgate import ConfigurationError, Decision, GatewayUnavailable, Guard

KEY = "ak_" + "k3y" * 12 + "z"
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
Asked = Callable[..., Awaitable[Decision]]


def allow(connection: socket.socket) -> None:
    body = json.dumps(ALLOWED).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TOOLGATE_HTTP", request.param)
    for name in ("CA_FILE", "CLIENT_CERT", "CLIENT_KEY", "CLIENT_KEY_PASSWORD", "PROXY"):
        monkeypatch.delenv(f"TOOLGATE_{name}", raising=False)
    return importlib.import_module(request.param)


@pytest.fixture(params=["sync", "async"])
def asked(request: pytest.FixtureRequest, library: Any) -> Asked:
    """Asks the gateway at an address, with a guard of these options."""

    async def ask(url: str, **options: Any) -> Decision:
        async with Guard(url, KEY, "agent", **{"timeout": 10, **options}) as guard:
            return guard.check("a.b") if request.param == "sync" else await guard.acheck("a.b")

    return ask


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The file of the gateway's own certificate, which nobody else trusts."""
    return certificate_for("localhost", tmp_path)[0]


@pytest.fixture
def tls(authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, authority.with_name("key.pem"))
    return context


async def test_private_certificate_authority_is_trusted_if_it_is_set(
    peer: Any, asked: Asked, authority: Path, tls: Any
) -> None:
    url = peer(allow, tls=tls).url
    assert (await asked(url, ca=authority)).allowed
    assert (await asked(url, ca=ssl.create_default_context(cafile=authority))).allowed
    with pytest.raises(GatewayUnavailable, match=r"(?i)certificate verify failed") as raised:
        await asked(url, timeout=1)
    assert raised.value.answered


async def test_private_certificate_authority_of_the_environment_is_trusted(
    peer: Any, asked: Asked, authority: Path, tls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_CA_FILE", str(authority))
    assert (await asked(peer(allow, tls=tls).url)).allowed


async def test_client_certificate_is_sent(
    peer: Any, asked: Asked, authority: Path, tls: Any, tmp_path: Path
) -> None:
    """Without it the call fails."""
    folder = tmp_path / "agent"
    folder.mkdir()
    pair = certificate_for("agent.example", folder)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(pair[0])
    shown = list[Any]()

    def look(connection: Any) -> None:
        shown.append(connection.getpeercert()["subject"])
        allow(connection)

    url = peer(look, tls=tls).url
    assert (await asked(url, ca=authority, client_cert=pair)).allowed
    assert "agent.example" in str(shown)
    with pytest.raises(GatewayUnavailable):
        await asked(url, ca=authority, timeout=1)


async def test_call_goes_through_a_proxy(peer: Any, asked: Asked, authority: Path, tls: Any) -> None:
    """The proxy receives its own password but nothing of the call."""
    server = peer(allow, tls=tls)
    with Tunnel(password="user:opensesame77") as tunnel:
        assert (
            await asked(server.url, ca=authority, proxy=f"http://user:opensesame77@{tunnel.address}")
        ).allowed
        assert tunnel.carried == 1
        assert tunnel.heads[0].startswith(b"CONNECT localhost:%d " % server.port)
        assert KEY.encode() not in bytes(tunnel.seen) + b"".join(tunnel.heads)
    assert b"proxy-authorization" not in b"".join(server.requests).lower()


async def test_toolgate_proxy_takes_precedence_over_https_proxy(
    peer: Any, asked: Asked, authority: Path, tls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used whatever NO_PROXY contains."""
    with Tunnel() as tunnel, Tunnel(refuses=403) as other:
        monkeypatch.setenv("TOOLGATE_PROXY", f"http://{tunnel.address}")
        monkeypatch.setenv("HTTPS_PROXY", f"http://{other.address}")
        monkeypatch.setenv("NO_PROXY", "*")
        assert (await asked(peer(allow, tls=tls).url, ca=authority)).allowed
        assert (tunnel.carried, other.heads) == (1, [])


@pytest.mark.parametrize(("status", "answered"), [(407, True), (403, True), (502, False), (504, False)])
async def test_proxy_that_refuses_is_an_outage_only_if_it_found_no_gateway(
    asked: Asked, caplog: pytest.LogCaptureFixture, status: int, answered: bool
) -> None:
    """Its password appears in no error."""
    with Tunnel(refuses=status) as tunnel, pytest.raises(GatewayUnavailable) as raised:
        await asked("https://gateway.example", proxy=f"http://user:opensesame77@{tunnel.address}", timeout=1)
    assert tunnel.heads
    assert raised.value.answered is answered
    assert "opensesame77" not in str(raised.value) + caplog.text


async def test_proxy_that_cannot_be_reached_is_an_outage(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    with Tunnel() as tunnel:
        address = tunnel.address
    with pytest.raises(GatewayUnavailable) as raised:
        await asked("https://gateway.example", proxy=f"http://user:opensesame77@{address}", timeout=0.5)
    assert not raised.value.answered
    assert "opensesame77" not in str(raised.value) + caplog.text


async def test_invalid_proxy_of_the_environment_is_an_error_without_its_password(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:open#sesame77@proxy.example")
    monkeypatch.setenv("ALL_PROXY", "gopher://user:opensesame77@proxy.example")
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY") as raised:
        await asked("https://gateway.example", timeout=0.5)
    seen: BaseException | None = raised.value
    assert "sesame77" not in str(seen)
    assert raised.value.__cause__ is None


async def test_given_transport_replaces_the_network(
    peer: Any, library: Any, authority: Path, tls: Any
) -> None:
    url, context = peer(allow, tls=tls).url, ssl.create_default_context(cafile=authority)
    with Guard(url, KEY, "agent", transport=library.HTTPTransport(verify=context)) as guard:
        assert guard.check("a.b").allowed
    async with Guard(url, KEY, "agent", transport=library.AsyncHTTPTransport(verify=context)) as guard:
        assert (await guard.acheck("a.b")).allowed
