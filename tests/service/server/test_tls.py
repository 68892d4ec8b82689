"""https without a proxy: what is served, what is refused, and a certificate that is renewed under way."""

import base64
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.certificates import certificate_for
from support.serving import Serving, run_serve
from support.waiting import until

from toolgate_service.core.errors import StartError
from toolgate_service.server.tls import Certificates, read_certificate

HOST = "localhost"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate and its key."""
    return _made(tmp_path / "tls")


def _made(folder: Path) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    return certificate_for(HOST, folder)


@pytest.fixture
def serving(home: Path, kept: dict[str, str], files: tuple[Path, Path]) -> Iterator[Serving]:
    """A gateway that speaks https."""
    arguments = ("--plan", "enterprise", "--tls-cert", str(files[0]), "--tls-key", str(files[1]))
    with Serving(home, *arguments, extra=kept) as gateway:
        yield gateway.listening()


def _url(serving: Serving) -> str:
    return f"https://{HOST}:{urlsplit(serving.url).port}"


def _serial(url: str) -> int:
    """Return which certificate a new connection is shown."""
    address = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((HOST, address.port or 0), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as line,
    ):
        shown = line.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number


def test_everything_is_served_encrypted(serving: Serving, files: tuple[Path, Path]) -> None:
    """The start-up line says https; whoever knows the certificate gets answers, and http gets none."""
    assert serving.url.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=str(files[0]))
    url = _url(serving)
    with httpx.Client(base_url=url, verify=trusting, timeout=30) as client:
        answer = client.post(
            "/auth/register",
            json={
                "email": "a@example.test",
                "password": "correct horse battery",
                "organization_name": "Acme",
            },
        )
        client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        key = client.get("/api/organization").json()["api_key"]
        for _ in range(3):
            asked = client.post(
                "/sdk/check", json={"agent_id": "x", "action": "a"}, headers={"X-API-Key": key}
            )
            assert (asked.status_code, asked.json()["allowed"]) == (200, False)
    with pytest.raises(httpx.ConnectError), httpx.Client(timeout=30) as stranger:
        stranger.get(f"{url}/health")
    with pytest.raises(httpx.RemoteProtocolError), httpx.Client(timeout=30) as plain:
        plain.get(f"http://{HOST}:{urlsplit(url).port}/health")
    assert serving.ended_by(15, 30) == 0


def test_a_renewed_certificate_is_taken_without_a_restart(
    serving: Serving, files: tuple[Path, Path], tmp_path: Path
) -> None:
    """New connections are shown what lies in the files now; half a renewal is logged, and the former one stays."""
    url = _url(serving)
    before = _serial(url)
    certificate, key = _made(tmp_path / "renewed")
    certificate.replace(files[0])
    until(
        lambda: (
            "the TLS certificate could not be reloaded, the former one is still used: TOOLGATE_TLS_KEY: "
            in serving.complaint
        )
    )
    assert _serial(url) == before
    key.replace(files[1])
    until(lambda: _serial(url) != before)
    assert serving.process.poll() is None


def test_half_a_chain_leaves_the_former_certificate(files: tuple[Path, Path], tmp_path: Path) -> None:
    """While an issuer's certificate is being written behind the new one, connections are shown the former; then the new."""
    issuer = _made(tmp_path / "issuer")[0].read_bytes()
    certificate, key = (file.read_bytes() for file in _made(tmp_path / "renewed"))
    certificates = Certificates(*files)
    before = _shown(certificates)
    files[1].write_bytes(key)
    for half in (100, len(issuer) - 10):
        files[0].write_bytes(certificate + issuer[:half])
        certificates.reload_if_changed()
        assert _shown(certificates) == before
    files[0].write_bytes(certificate + issuer)
    certificates.reload_if_changed()
    assert _shown(certificates) == x509.load_pem_x509_certificate(certificate).serial_number


def _shown(certificates: Certificates) -> int:
    """Return which certificate a connection is shown that names no host."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(down, up)
    server = certificates.context.wrap_bio(up, down, server_side=True)
    waiting = [client, server]
    while waiting:
        for side in tuple(waiting):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
                waiting.remove(side)
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def test_old_versions_are_not_spoken(files: tuple[Path, Path]) -> None:
    """TLS 1.2 and later, nothing before."""
    assert Certificates(*files).context.minimum_version == ssl.TLSVersion.TLSv1_2


def _of_an_unknown_kind(certificate: Path) -> bytes:
    """Return a certificate whose key is of a kind that nobody knows."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes()).public_bytes(serialization.Encoding.DER)
    # The identifier of elliptic curves (RFC 5480 §2.1.1), and one that is none.
    known = bytes.fromhex("2a8648ce3d0201")
    assert known in found
    body = base64.encodebytes(found.replace(known, known[:-1] + b"\x77"))
    return b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n"


def _encrypted() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"a passphrase"),
    )


def test_files_that_cannot_be_used_are_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Missing, unreadable, of another kind, encrypted or of another certificate: which file, and what to do."""
    certificate, key = files
    (tmp_path / "encrypted.pem").write_bytes(_encrypted())
    (tmp_path / "notes.pem").write_text("these are my notes")
    strange = tmp_path / "strange.pem"
    strange.write_bytes(_of_an_unknown_kind(certificate))
    nowhere, folder, notes = tmp_path / "nowhere.pem", tmp_path, tmp_path / "notes.pem"
    other = _made(tmp_path / "other")[1]
    for pair, words in (
        ((nowhere, key), ("TOOLGATE_TLS_CERT", "nowhere.pem", "No such file")),
        ((certificate, folder), ("TOOLGATE_TLS_KEY", "directory")),
        ((notes, key), ("TOOLGATE_TLS_CERT", "notes.pem", "no certificate")),
        ((strange, key), ("TOOLGATE_TLS_CERT", "strange.pem", "unsupported type")),
        ((key, key), ("TOOLGATE_TLS_CERT", "no certificate")),
        ((certificate, notes), ("TOOLGATE_TLS_KEY", "no private key")),
        ((certificate, certificate), ("TOOLGATE_TLS_KEY", "no private key")),
        ((certificate, tmp_path / "encrypted.pem"), ("TOOLGATE_TLS_KEY", "encrypted", "passphrase")),
        ((certificate, other), ("TOOLGATE_TLS_KEY", "does not belong to the first certificate")),
    ):
        with pytest.raises(StartError) as refused:
            read_certificate(*pair)
        (line,) = str(refused.value).splitlines()
        assert [word for word in words if word not in line] == [], line
        assert key.read_text().splitlines()[1] not in line


def test_one_without_the_other_is_refused(home: Path, files: tuple[Path, Path]) -> None:
    """A certificate without its key ends the start in one line, before anything is made."""
    ended = run_serve(home, "--tls-cert", str(files[0]))
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "TOOLGATE_TLS_KEY: is required with TOOLGATE_TLS_CERT" in line
    assert list(home.iterdir()) == []
