"""Access tokens: which ones the proxy accepts, and which settings it refuses."""

import asyncio
import base64
import hmac
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from support.http_proxies import AUDIENCE, ISSUER, token, write_keys
from support.waiting import eventually

from toolgate import ConfigurationError
from toolgate_integrations.mcp_proxy.listener import listener_of
from toolgate_integrations.mcp_proxy.tokens import JwtVerifier, load_keys

SECRET = b"a shared secret that is published by mistake"


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


PUBLISHED: dict[str, Any] = {"kty": "oct", "kid": "shared", "k": base64url(SECRET)}


@pytest.fixture
def verifier(tmp_path: Path) -> JwtVerifier:
    return JwtVerifier(ISSUER, AUDIENCE, load_keys(str(write_keys(tmp_path, PUBLISHED))))


async def test_valid_token(verifier: JwtVerifier) -> None:
    found = await verifier.verify_token(token(scope="a b", aud=["https://other.example.com", AUDIENCE]))
    assert found is not None
    assert (found.subject, found.client_id, found.scopes) == ("alice", "assistant", ["a", "b"])
    assert (found.claims or {})["iss"] == ISSUER


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1_000_000_000},
        {"exp": None},
        {"nbf": 4_000_000_000},
        {"iss": "https://other.example.com"},
        {"iss": None},
        {"aud": "https://other.example.com"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
    ],
)
async def test_token_with_invalid_claims_is_rejected(verifier: JwtVerifier, claims: dict[str, Any]) -> None:
    assert await verifier.verify_token(token(**claims)) is None


async def test_token_of_another_key_is_rejected(verifier: JwtVerifier) -> None:
    other = generate_private_key(SECP256R1())
    assert await verifier.verify_token(token(other)) is None
    assert await verifier.verify_token(token(other, kid="unknown")) is None
    assert await verifier.verify_token(token(kid=None)) is None


async def test_token_without_an_asymmetric_signature_is_rejected(verifier: JwtVerifier) -> None:
    assert await verifier.verify_token(token(SECRET, "HS256")) is None
    assert await verifier.verify_token(token(SECRET, "HS256", kid="shared")) is None
    assert await verifier.verify_token(token("", "none")) is None


async def test_header_cannot_choose_the_algorithm_of_a_published_secret(verifier: JwtVerifier) -> None:
    header = base64url(json.dumps({"alg": "ES256", "kid": "shared"}).encode())
    signed = f"{header}.{token().split('.')[1]}"
    signature = base64url(hmac.digest(SECRET, signed.encode(), "sha256"))
    assert await verifier.verify_token(f"{signed}.{signature}") is None


@pytest.mark.parametrize("text", ["", "a.b.c", "…", "a" * 100_000])
async def test_text_that_is_no_token_is_rejected(verifier: JwtVerifier, text: str) -> None:
    assert await verifier.verify_token(text) is None


async def test_changed_token_is_rejected(verifier: JwtVerifier) -> None:
    header, _, signature = token().split(".")
    claims = token(sub="bob").split(".")[1]
    assert await verifier.verify_token(f"{header}.{claims}.{signature}") is None


async def test_keys_are_fetched_from_an_address(tmp_path: Path) -> None:
    keys = write_keys(tmp_path).read_bytes()
    app = Starlette(routes=[Route("/jwks", lambda _: Response(keys, media_type="application/json"))])
    http = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    serving = asyncio.create_task(http.serve())

    async def started() -> bool:
        return http.started

    await eventually(started)
    port = http.servers[0].sockets[0].getsockname()[1]
    verifier = JwtVerifier(ISSUER, AUDIENCE, load_keys(f"http://127.0.0.1:{port}/jwks"))
    assert await verifier.verify_token(token()) is not None
    assert await verifier.verify_token(token(kid="unknown")) is None
    http.should_exit = True
    await serving
    away = JwtVerifier(ISSUER, AUDIENCE, load_keys(f"http://127.0.0.1:{port}/jwks"))
    assert await away.verify_token(token()) is None


@pytest.mark.parametrize(
    "place",
    ["http://keys.example.com/jwks", "file:///etc/passwd", "https://a:b@keys.example.com", "/no/such/file"],
)
def test_unsafe_place_of_the_keys_is_refused(place: str) -> None:
    with pytest.raises(ConfigurationError):
        load_keys(place)


@pytest.mark.parametrize("content", ["", "{}", '{"keys": []}', "[1]", "\0"])
def test_file_without_keys_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match="key set"):
        load_keys(str(file))


@pytest.mark.parametrize("listen", ["", "8080", "127.0.0.1", ":8080", "127.0.0.1:http", "127.0.0.1:99999"])
def test_invalid_address_is_refused(listen: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        listener_of(listen, None, None, None)


def test_proxy_for_other_machines_needs_tokens() -> None:
    with pytest.raises(ConfigurationError, match="reachable from other machines"):
        listener_of("0.0.0.0:0", None, None, None)


def test_settings_of_tokens_are_complete_and_valid(tmp_path: Path) -> None:
    keys = str(write_keys(tmp_path))
    with pytest.raises(ConfigurationError, match="together"):
        listener_of("127.0.0.1:0", ISSUER, None, keys)
    with pytest.raises(ConfigurationError, match="not a valid URL"):
        listener_of("127.0.0.1:0", "issuer", AUDIENCE, keys)


def test_port_in_use_is_an_error() -> None:
    first = listener_of("127.0.0.1:0", None, None, None)
    port = httpx2.URL(first.url).port
    with first.socket, pytest.raises(ConfigurationError, match="cannot listen"):
        listener_of(f"127.0.0.1:{port}", None, None, None)
