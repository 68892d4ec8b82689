"""The table of keys, and where keys must not be (decisions §9)."""

import hashlib
import random
from pathlib import Path

import pytest
from support.gateway import LiveGateway, Owner
from support.insight import execute, rows, vault
from support.shapes import MOMENT

from toolgate_service.core.clock import utcnow
from toolgate_service.organizations.repository import mint_key, shown_key

QUERY = (
    "SELECT id, environment, agent_id, digest, ciphertext, last_four, created_by, revoked_at FROM api_keys "
    "WHERE organization_id = ? ORDER BY created_at, id"
)


def test_a_row_says_whose_key_it_is_and_how_to_find_and_show_it(
    gateway: LiveGateway, newcomer: Owner
) -> None:
    """Organization, environment, agent or null, SHA-256, the sealed key, its creator, and when it was revoked."""
    agent = newcomer.agent()
    own = newcomer.http.post(f"/api/agents/{agent}/keys").json()["api_key"]
    test = newcomer.http.get("/api/organization/test-key").json()["api_key"]
    new = newcomer.http.post("/api/organization/regenerate-key").json()["api_key"]
    organization = newcomer.user["organization_id"]
    found = {row[3]: row for row in rows(gateway, QUERY, organization)}
    assert len(found) == 4
    for key, environment, of, alive in (
        (newcomer.key, "production", None, False),
        (new, "production", None, True),
        (test, "test", None, True),
        (own, "production", agent, True),
    ):
        row = found[hashlib.sha256(key.encode()).hexdigest()]
        assert row[1:3] == (environment, of)
        assert vault().open(bytes(row[4]), table="ApiKey", row=row[0], organization=organization) == key
        assert row[5:7] == (key[-4:], newcomer.user["id"])
        assert (row[7] is None) if alive else MOMENT.fullmatch(row[7])


@pytest.mark.parametrize("environment", ["production", "test"])
def test_nobody_foresees_a_key(environment: str) -> None:
    """Keys come from the system's randomness: Python's own generator, set to where it was, does not repeat them."""

    def made() -> str | None:
        random.seed(7)
        key = mint_key(vault(), "o", environment, created_at=utcnow(), created_by="u")
        return shown_key(vault(), key)

    assert len({made() for _ in range(20)}) == 20


def test_no_log_line_has_a_key_or_a_token(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever is asked with them, rightly or wrongly, and whatever breaks: not on standard output, not in the log."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        entry = owner.log(agent, "a").json()["id"]
        secrets = [
            owner.key,
            owner.http.get("/api/organization/test-key").json()["api_key"],
            owner.http.post(f"/api/agents/{agent}/keys").json()["api_key"],
            owner.key[:-1] + ("a" if owner.key[-1] != "a" else "b"),
            owner.token,
        ]
        for secret in secrets:
            headers = {"X-API-Key": secret, "Authorization": f"Bearer {secret}"}
            for method, path in (("POST", "/sdk/check"), ("POST", "/sdk/log"), ("GET", "/sdk/approvals/x")):
                owner.http.request(method, path, content=b"{", headers=headers)
            owner.http.get("/api/agents", headers=headers, params={"api_key": secret})
        execute(gateway, "UPDATE log_entries SET context = 'no json' WHERE id = ?", entry)
        crashed = owner.http.get("/api/logs", headers={"X-API-Key": owner.key, "X-Request-ID": "find-me"})
        assert crashed.status_code == 500
        assert owner.http.post("/api/organization/regenerate-key").status_code == 200
    told = "".join(capfd.readouterr())
    assert "find-me" in told, "the crash is in the log, so the log was read"
    assert [secret for secret in secrets if secret in told or secret[8:-8] in told] == []
