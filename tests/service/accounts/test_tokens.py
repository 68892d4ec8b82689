"""What the management surface takes for a token, and what it does not."""

import base64
import json
import time
from typing import Any

import httpx
import jwt
import pytest
from support.gateway import LiveGateway, Owner
from support.insight import execute, vault
from support.shapes import refused

SURFACE = [
    ("GET", "/auth/me"),
    ("GET", "/api/organization"),
    ("POST", "/api/organization/regenerate-key"),
    ("GET", "/api/agents"),
    ("POST", "/api/agents"),
    ("GET", "/api/agents/x"),
    ("PUT", "/api/agents/x"),
    ("DELETE", "/api/agents/x"),
    ("GET", "/api/agents/x/permissions"),
    ("POST", "/api/agents/x/permissions"),
    ("DELETE", "/api/agents/x/permissions/y"),
    ("PUT", "/api/permissions/y"),
    ("DELETE", "/api/permissions/y"),
    ("GET", "/api/logs"),
    ("GET", "/api/approvals"),
    ("GET", "/api/approvals/z"),
    ("POST", "/api/approvals/z/approve"),
    ("POST", "/api/approvals/z/deny"),
    ("POST", "/auth/logout"),
    ("POST", "/auth/password"),
    ("GET", "/api/team"),
    ("POST", "/api/team/invitations"),
    ("DELETE", "/api/team/invitations/x"),
    ("PUT", "/api/team/x"),
    ("DELETE", "/api/team/x"),
]


def not_authenticated(answer: httpx.Response) -> None:
    refused(answer, 401, "Not authenticated")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def me(owner: Owner, authorization: str | bytes) -> httpx.Response:
    return httpx.get(f"{owner.url}/auth/me", headers={"Authorization": authorization}, timeout=30)


def forged(owner: Owner, *, key: bytes | None = None, algorithm: str = "HS256", **changes: Any) -> str:
    claims = jwt.decode(owner.token, options={"verify_signature": False}) | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    signing = vault().token_keys[0] if key is None else key
    return jwt.encode(claims, signing, algorithm=algorithm)


@pytest.mark.parametrize(("method", "path"), SURFACE)
def test_every_management_route_wants_a_token(anyone: httpx.Client, method: str, path: str) -> None:
    """Without a token every route answers the same 401, whatever the body holds (decisions §2)."""
    for body in (b"", b"{", b'{"unknown": 1}'):
        not_authenticated(anyone.request(method, path, content=body))


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer not-a-token",
        "Bearer a.b.c",
        "Basic dXNlcjpwYXNzd29yZA==",
        "Token x",
        b"Bearer \xff\xfe",
        "Bearer " + "x" * 5000,
    ],
)
def test_a_malformed_header_is_no_token(acme: Owner, authorization: str | bytes) -> None:
    """Anything that is no bearer token gets the 401 of a missing one (decisions §2)."""
    not_authenticated(me(acme, authorization))


def test_the_scheme_is_not_case_sensitive(acme: Owner) -> None:
    """HTTP schemes are compared without regard to case."""
    assert me(acme, f"bearer {acme.token}").status_code == 200


def test_the_forger_below_can_write_a_good_token(acme: Owner) -> None:
    """What the refused tokens differ in is exactly what their tests name."""
    assert me(acme, f"Bearer {forged(acme)}").status_code == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": int(time.time()) - 1},
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"jti": None},
        {"ver": None},
        {"scope": None},
        {"iss": "someone-else"},
        {"aud": "another-audience"},
        {"aud": None},
        {"ver": 2},
        {"ver": "1"},
        {"sub": "01890000-0000-7000-8000-000000000000"},
        {"jti": "01890000-0000-7000-8000-000000000000"},
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(acme: Owner, changes: dict[str, Any]) -> None:
    """Expired, incomplete, meant for others, or of another version: all the same 401 (decisions §2, §9)."""
    not_authenticated(me(acme, f"Bearer {forged(acme, **changes)}"))


def test_a_token_of_a_faster_clock_is_good(acme: Owner) -> None:
    """The database's clock says when a session began; this machine's, a little behind it, has no say (decisions §12)."""
    assert me(acme, f"Bearer {forged(acme, iat=int(time.time()) + 4)}").status_code == 200


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
def test_another_algorithm_is_refused(acme: Owner, algorithm: str) -> None:
    """The algorithm is pinned, even when the signature is right (decisions §9)."""
    key = vault().token_keys[0] * 2
    not_authenticated(me(acme, f"Bearer {forged(acme, key=key, algorithm=algorithm)}"))


def test_another_secret_is_refused(acme: Owner) -> None:
    """A token signed with another key is nobody's."""
    not_authenticated(me(acme, f"Bearer {forged(acme, key=b'k' * 32)}"))


def test_an_unsigned_token_is_refused(acme: Owner) -> None:
    """`alg: none` lets nobody in, with and without a trailing signature."""
    payload = acme.token.split(".")[1]
    header = base64.urlsafe_b64encode(json.dumps({"alg": "none", "typ": "JWT"}).encode()).decode().rstrip("=")
    not_authenticated(me(acme, f"Bearer {header}.{payload}."))
    not_authenticated(me(acme, f"Bearer {header}.{payload}.{acme.token.split('.')[2]}"))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_tampered_token_is_refused(acme: Owner, part: int) -> None:
    """One changed character in header, claims or signature makes a token worthless."""
    parts = acme.token.split(".")
    first = "A" if parts[part][0] != "A" else "B"
    parts[part] = first + parts[part][1:]
    not_authenticated(me(acme, f"Bearer {'.'.join(parts)}"))


def test_a_header_of_nothing_but_brackets_is_refused(acme: Owner) -> None:
    """A token whose header nests deeper than the parser goes is malformed, not a crash."""
    header = base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("=")
    not_authenticated(me(acme, f"Bearer {header}.e30.x"))


def test_an_ended_session_is_refused(gateway: LiveGateway, acme: Owner) -> None:
    """A revoked session's token stops working at once, another login of the same user does not (decisions §9)."""
    with acme.login() as ended, acme.login() as other:
        token = ended.headers["Authorization"].removeprefix("Bearer ")
        session = jwt.decode(token, options={"verify_signature": False})["jti"]
        statement = "UPDATE sessions SET revoked_at = created_at WHERE id = ?"
        assert execute(gateway, statement, session) == 1
        not_authenticated(ended.get("/auth/me"))
        assert other.get("/auth/me").status_code == 200


def test_a_raised_version_ends_every_session(gateway: LiveGateway, newcomer: Owner) -> None:
    """Role change, removal and password change raise `ver`: all older tokens stop working (decisions §9)."""
    assert newcomer.http.get("/auth/me").status_code == 200
    execute(gateway, "UPDATE users SET version = version + 1 WHERE id = ?", newcomer.user["id"])
    not_authenticated(newcomer.http.get("/auth/me"))


def test_an_api_key_is_no_token(acme: Owner) -> None:
    """The management surface takes no API key, in neither header (spec §5)."""
    not_authenticated(me(acme, f"Bearer {acme.key}"))
    not_authenticated(httpx.get(f"{acme.url}/auth/me", headers={"X-API-Key": acme.key}, timeout=30))


def test_a_token_is_no_api_key(acme: Owner) -> None:
    """The SDK surface takes no token (spec §5)."""
    answer = acme.http.post("/sdk/check", json={"agent_id": "x", "action": "y"})
    refused(answer, 401, "Missing API key")
    headers = {"X-API-Key": acme.token}
    refused(acme.http.post("/sdk/check", json={}, headers=headers), 401, "Invalid API key")
