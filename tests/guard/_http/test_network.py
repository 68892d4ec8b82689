"""Validation of network settings."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from support.certificates import certificate_for

from toolgate import ConfigurationError, Guard
from toolgate._http.network import DEFAULT_NETWORK

KEY = "ak_" + "k3y" * 12 + "z"
URL = "https://gateway.example"
PASSWORD = "open sesame 77"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CA_FILE", "CLIENT_CERT", "CLIENT_KEY", "CLIENT_KEY_PASSWORD", "PROXY"):
        monkeypatch.delenv(f"TOOLGATE_{name}", raising=False)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    certificate, key = certificate_for("agent.example", tmp_path)
    return str(certificate), str(key)


def locked(key: str, folder: Path) -> str:
    """The same key under a password."""
    found = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    path = folder / "locked.pem"
    path.write_bytes(
        found.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    return str(path)


def refused(**options: Any) -> str:
    with pytest.raises(ConfigurationError) as raised:
        Guard(URL, KEY, "agent", **options)
    assert raised.value.__cause__ is None
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


def test_valid_files_are_accepted(pair: tuple[str, str], tmp_path: Path) -> None:
    """As str or Path, with and without a password."""
    secret = locked(pair[1], tmp_path)
    for options in (
        {"ca": pair[0]},
        {"ca": Path(pair[0])},
        {"client_cert": pair},
        {"client_cert": (Path(pair[0]), secret, PASSWORD)},
        {"ca": ssl.create_default_context()},
    ):
        guard = Guard(URL, KEY, "agent", **options)  # type: ignore[arg-type]  # a dict of mixed values
        assert PASSWORD not in repr(guard) + repr(guard._guard_state.settings) + repr(
            guard._guard_state.settings.network
        )


@pytest.mark.parametrize("what", ["ca", "certificate", "key"])
@pytest.mark.parametrize("fault", ["missing", "empty", "folder"])
def test_invalid_file_is_an_error_when_the_guard_is_created(
    pair: tuple[str, str], tmp_path: Path, what: str, fault: str
) -> None:
    """The error names the file and the fix."""
    path = tmp_path / "wrong.pem"
    if fault == "empty":
        path.touch()
    elif fault == "folder":
        path.mkdir()
    options: dict[str, Any] = {
        "ca": {"ca": path},
        "certificate": {"client_cert": (path, pair[1])},
        "key": {"client_cert": (pair[0], path)},
    }[what]
    said = refused(**options)
    assert repr(str(path)) in said
    assert ("TOOLGATE_" in said) if fault != "empty" else ("PEM" in said)


def test_key_of_another_certificate_is_an_error(pair: tuple[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    _, key = certificate_for("other.example", other)
    assert "the key must belong to the certificate" in refused(client_cert=(pair[0], key))


@pytest.mark.parametrize("password", [(), ("wrong",)])
def test_encrypted_key_without_its_password_is_an_error(
    pair: tuple[str, str], tmp_path: Path, password: tuple[str, ...]
) -> None:
    """OpenSSL does not ask for it on the terminal."""
    assert "password" in refused(client_cert=(pair[0], locked(pair[1], tmp_path), *password))


@pytest.mark.parametrize(
    "client_cert", ["cert.pem", ("cert.pem",), ("c", "k", "p", "x"), ("c", "k", 7), (1, "k"), ["c", "k"]]
)
def test_client_cert_of_another_form_is_an_error(client_cert: Any) -> None:
    assert "client_cert" in refused(client_cert=client_cert)


@pytest.mark.parametrize("ca", [7, True, b"pem"])
def test_ca_of_another_type_is_an_error(ca: Any) -> None:
    """A number is not opened as a file descriptor."""
    assert "ca is " in refused(ca=ca)


def test_context_without_verification_is_an_error() -> None:
    nameless = ssl.create_default_context()
    nameless.check_hostname = False
    anybody = ssl.create_default_context()
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    for context in (nameless, anybody):
        assert "verify" in refused(ca=context)


def test_client_cert_beside_a_context_is_an_error(pair: tuple[str, str]) -> None:
    """Nothing is loaded into the caller's context."""
    assert "into the context" in refused(ca=ssl.create_default_context(), client_cert=pair)


@pytest.mark.parametrize(
    "proxy",
    [
        "proxy.example:3128",
        f"socks5://user:{PASSWORD}@proxy.example",
        f"https://user:{PASSWORD}@proxy.example",
        "http://",
        f"http://user:{PASSWORD.replace(' ', '')}@proxy.example:port",
        "http://proxy.example/path",
        "http://proxy.example?x",
        "http://[::1",
        "http://proxy.exa mple",
        7,
    ],
)
def test_invalid_proxy_is_an_error(proxy: Any) -> None:
    """The error contains an example but nothing of the value."""
    said = refused(proxy=proxy)
    assert "TOOLGATE_PROXY" in said
    assert PASSWORD.replace(" ", "") not in said


@pytest.mark.parametrize("named", ["argument", "environment"])
def test_proxy_for_plain_http_is_an_error(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """It could read the API key."""
    proxy = "http://user:opensesame77@proxy.example:3128"
    if named == "environment":
        monkeypatch.setenv("TOOLGATE_PROXY", proxy)
    with pytest.raises(ConfigurationError, match="plain http") as raised:
        Guard("http://127.0.0.1:9", KEY, "agent", proxy=proxy if named == "argument" else None)
    assert "opensesame77" not in str(raised.value)


def test_settings_are_read_from_the_environment(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_CA_FILE", str(tmp_path / "missing.pem"))
    assert "TOOLGATE_CA_FILE" in refused()
    Guard(URL, KEY, "agent", ca=pair[0])
    monkeypatch.setenv("TOOLGATE_CA_FILE", "")
    monkeypatch.setenv("TOOLGATE_CLIENT_CERT", pair[0])
    assert "TOOLGATE_CLIENT_KEY is not set" in refused()
    monkeypatch.setenv("TOOLGATE_CLIENT_KEY", locked(pair[1], tmp_path))
    assert "password" in refused()
    monkeypatch.setenv("TOOLGATE_CLIENT_KEY_PASSWORD", PASSWORD)
    monkeypatch.setenv("TOOLGATE_PROXY", "http://user:opensesame77@proxy.example:3128")
    guard = Guard(URL, KEY, "agent")
    assert "opensesame77" not in repr(guard) + repr(guard._guard_state.settings) + repr(
        guard._guard_state.settings.network
    )


@pytest.mark.parametrize("name", ["ca", "client_cert", "proxy"])
def test_network_settings_beside_a_transport_are_an_error(name: str) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(500))
    assert "together with transport" in refused(transport=transport, **{name: "x"})


async def test_transport_of_the_other_kind_is_an_error() -> None:
    """Synchronous calls need a synchronous transport."""
    guard = Guard(URL, KEY, "agent", transport=httpx.HTTPTransport())
    with pytest.raises(ConfigurationError, match="AsyncBaseTransport"):
        await guard.acheck("a.b")
    guard = Guard(URL, KEY, "agent", transport=httpx.AsyncHTTPTransport())
    with pytest.raises(ConfigurationError, match=r"httpx\.BaseTransport"):
        guard.check("a.b")


def test_plain_http_reads_no_certificates() -> None:
    """Reading them takes longer than a whole call."""

    def fail() -> ssl.SSLContext:
        raise AssertionError("certificates are read")

    plain = DEFAULT_NETWORK.context("http://127.0.0.1:8000", fail)
    assert plain.cert_store_stats()["x509"] == 0
    context = ssl.create_default_context()
    assert DEFAULT_NETWORK.context("https://gateway.example.com", lambda: context) is context
