"""Which requests go through the proxies of the environment."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import certifi
import pytest
from support.http_libraries import LIBRARIES

from toolgate import ConfigurationError, GatewayUnavailable, Guard
from toolgate._http.exchange import Request, TransportError
from toolgate._http.transport import HttpSender
from toolgate._settings import proxies_allowed

KEY = "ak_" + "k3y" * 12 + "z"
ALLOWED = b'{"allowed":true,"requires_approval":false,"reason":null,"approval_id":null}'
YES = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def proxy(peer: Any) -> Any:
    """A proxy that answers every request itself, and says yes."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(YES % (len(ALLOWED), ALLOWED))

    return peer(answer)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_plain_http_uses_no_proxy(
    proxy: Any, monkeypatch: pytest.MonkeyPatch, variable: str, kind: str
) -> None:
    """The proxy could read the API key, and its response could allow a call."""
    monkeypatch.setenv(variable, proxy.url)
    async with Guard("http://127.0.0.1:9", KEY, "agent-1", timeout=0.05) as guard:
        with pytest.raises(GatewayUnavailable):
            guard.check("a.b") if kind == "sync" else await guard.acheck("a.b")
    assert proxy.requests == []


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://gateway.example", True),
        ("http://gateway.example", False),
        ("https://localhost:8443", False),
        ("https://127.0.0.1:8443", False),
        ("https://[::1]:8443", False),
    ],
)
def test_only_tls_to_another_host_uses_a_proxy(url: str, allowed: bool) -> None:
    assert proxies_allowed(url) is allowed


@pytest.mark.parametrize("library", LIBRARIES)
def test_proxy_is_asked_for_a_tunnel(proxy: Any, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """It receives nothing of the request."""
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    wire = HttpSender("https://gateway.example", library)
    with pytest.raises(TransportError):
        wire.send(Request("GET", "https://gateway.example/x", {"X-API-Key": KEY}), 2.0)
    assert proxy.requests[0].startswith(b"CONNECT gateway.example:443 ")
    assert not any(KEY.encode() in each for each in proxy.requests)
    wire.close()


@pytest.mark.parametrize("url", ["socks5://127.0.0.1:9", "gopher://127.0.0.1:9", "http://[::1"])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_unusable_proxy_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, url: str, kind: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", url)
    async with Guard("https://gateway.example", KEY, "agent-1", timeout=0.05) as guard:
        with pytest.raises(ConfigurationError, match="ALL_PROXY"):
            guard.check("a.b") if kind == "sync" else await guard.acheck("a.b")


@pytest.mark.parametrize(
    ("no_proxy", "url", "is_used"),
    [
        ("", "https://gateway.example", True),
        ("gateway.example", "https://gateway.example", False),
        (".example", "https://gateway.example", False),
        ("gateway.example:8443", "https://gateway.example:8443", False),
        ("other.example, gateway.example", "https://gateway.example", False),
        ("*", "https://gateway.example", False),
        ("other.example", "https://gateway.example", True),
    ],
)
def test_no_proxy_excludes_hosts(
    monkeypatch: pytest.MonkeyPatch, proxy: Any, no_proxy: str, url: str, is_used: bool
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy.url.removeprefix("http://"))
    monkeypatch.setenv("NO_PROXY", no_proxy)
    monkeypatch.setattr(socket, "getaddrinfo", resolve_only_addresses)
    sender = HttpSender(url)
    with pytest.raises(TransportError):
        sender.send(Request("GET", url, {}), 2.0)
    assert bool(proxy.requests) is is_used
    sender.close()


def resolve_only_addresses(host: Any, port: Any, *args: Any, **options: Any) -> Any:
    if host not in ("127.0.0.1", b"127.0.0.1"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("proxies", [True, False])
def test_certificates_of_the_environment_are_read_with_and_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str, proxies: bool
) -> None:
    url = "https://gateway.example" if proxies else "https://127.0.0.1:9"
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    with pytest.raises(TransportError):
        HttpSender(url, library).send(Request("GET", url, {}), 0.5)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
        HttpSender(url, library).send(Request("GET", url, {}), 0.5)
