"""`X-Toolgate-Organization` and `-Environment`: what was kept for one organization goes to no other (decisions §13)."""

import httpx
import pytest
from support.gateway import Owner

NAMES = ("X-Toolgate-Organization", "X-Toolgate-Environment")
ASKED = [
    ("POST", "/sdk/check", b'{"agent_id": "x", "action": "a"}'),
    ("POST", "/sdk/check", b"{"),
    ("POST", "/sdk/log", b"{}"),
    ("POST", "/sdk/logs", b'{"entries": []}'),
    ("GET", "/sdk/permissions?agent_id=x", b""),
    ("GET", "/sdk/approvals/x", b""),
]


def asked(owner: Owner, key: str, method: str, path: str, content: bytes) -> httpx.Response:
    return owner.http.request(method, path, content=content, headers={"X-API-Key": key})


@pytest.mark.parametrize(("method", "path", "content"), ASKED)
def test_answers_say_whose_the_key_is(acme: Owner, method: str, path: str, content: bytes) -> None:
    """Every authenticated answer of the SDK surface names the key's organization and environment."""
    keys = {
        "production": acme.key,
        "test": acme.http.get("/api/organization/test-key").json()["api_key"],
    }
    for environment, key in keys.items():
        answer = asked(acme, key, method, path, content)
        assert [answer.headers[name] for name in NAMES] == [acme.user["organization_id"], environment]


@pytest.mark.parametrize(("method", "path", "content"), ASKED)
def test_nobody_else_is_told(acme: Owner, method: str, path: str, content: bytes) -> None:
    """A key that is not valid learns of no organization."""
    answer = asked(acme, acme.key[:-1] + ("a" if acme.key[-1] != "a" else "b"), method, path, content)
    assert answer.status_code == 401
    assert not set(answer.headers) & {name.lower() for name in NAMES}
