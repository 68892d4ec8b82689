"""GET /api/audit: who changed what, when, from where (decisions §3)."""

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.shapes import MOMENT, complaints
from support.team import Colleague

FIELDS = {
    "id",
    "organization_id",
    "environment",
    "type",
    "kind",
    "resource_id",
    "user_id",
    "user_email",
    "changes",
    "ip_address",
    "created_at",
}


def kinds(client: httpx.Client, **params: str) -> list[str]:
    answer = client.get("/api/audit", params=params)
    assert answer.status_code == 200, answer.text
    return [entry["kind"] for entry in answer.json()]


def test_an_entry_says_who_what_when_and_from_where(newcomer: Owner) -> None:
    """All fields, the new values among them, exact."""
    agent = newcomer.agent("bot")
    body = '{"action":"x","max_amount":9007199254740993.01}'
    newcomer.http.post(f"/api/agents/{agent}/permissions", content=body)
    answer = newcomer.http.get("/api/audit", params={"limit": 1})
    assert b"9007199254740993.01" in answer.content
    [entry] = answer.json()
    assert set(entry) == FIELDS
    assert entry["type"] == entry["kind"]
    assert (entry["kind"], entry["environment"]) == ("permission.created", "production")
    assert (entry["user_id"], entry["user_email"]) == (newcomer.user["id"], newcomer.email)
    assert entry["changes"]["action"] == "x"
    assert entry["changes"]["agent_id"] == agent
    assert entry["ip_address"] == "127.0.0.1"
    assert entry["organization_id"] == newcomer.user["organization_id"]
    assert MOMENT.fullmatch(entry["created_at"])


def test_filters_by_kind_and_user(newcomer: Owner) -> None:
    """Alone and together, newest first."""
    with Colleague(newcomer) as member:
        member.http.post("/api/agents", json={"name": "theirs"})
        newcomer.agent()
        both = {"kind": "agent.created"}
        assert kinds(newcomer.http, **both) == ["agent.created"] * 2
        assert kinds(newcomer.http, **both, user_id=member.id) == ["agent.created"]
        assert kinds(newcomer.http, user_id=member.id) == ["agent.created", "team.joined"]
        assert kinds(newcomer.http, kind="agent") == []
        assert kinds(newcomer.http, type="agent.created") == ["agent.created"] * 2
        assert kinds(newcomer.http, type="team.joined", kind="agent.created") == ["team.joined"]
        assert kinds(newcomer.http)[:2] == ["agent.created"] * 2


@pytest.mark.parametrize("role", ["admin", "member", "viewer"])
def test_every_role_reads(newcomer: Owner, role: str) -> None:
    """The audit is read by whoever reads."""
    with Colleague(newcomer, role) as colleague:
        assert kinds(colleague.http) == kinds(newcomer.http)


def test_a_removed_users_entries_keep_the_name(newcomer: Owner) -> None:
    """Who has left is still who it was."""
    with Colleague(newcomer) as member:
        member.http.post("/api/agents", json={"name": "theirs"})
        newcomer.http.delete(f"/api/team/{member.id}")
        [entry] = newcomer.http.get("/api/audit", params={"kind": "agent.created"}).json()
        assert (entry["user_id"], entry["user_email"]) == (member.id, member.email)


def test_each_environment_has_its_own_entries(newcomer: Owner) -> None:
    """Changes of the test environment are listed there alone; what belongs to none, with production (decisions §8)."""
    newcomer.http.post("/api/agents", json={"name": "t"}, params={"environment": "test"})
    newcomer.http.put("/api/organization", json={"name": "Renamed"})
    assert kinds(newcomer.http, environment="test") == ["agent.created"]
    production = kinds(newcomer.http)
    assert "organization.updated" in production
    assert "agent.created" not in production


def test_what_a_key_did_names_no_user(acme: Owner, bot: str) -> None:
    """A mismatched idempotency key is audited without a user (decisions §6)."""
    for action in ("a", "b"):
        body = {"agent_id": bot, "action": action, "status": "success"}
        acme.http.post("/sdk/log", json=body, headers={"X-API-Key": acme.key, "Idempotency-Key": bot})
    [entry, *_] = acme.http.get("/api/audit", params={"kind": "log.idempotency_mismatch"}).json()
    assert (entry["user_id"], entry["user_email"], entry["changes"]) == (None, None, None)


def test_other_organizations_see_nothing(gateway: LiveGateway, newcomer: Owner, rival: Owner) -> None:
    """A listing holds the caller's organization alone; without a token there is none."""
    newcomer.agent()
    assert kinds(rival.http, user_id=newcomer.user["id"]) == []
    assert httpx.get(f"{gateway.url}/api/audit").status_code == 401


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": 101}, {"offset": -1}, {"environment": "x"}])
def test_a_wrong_parameter_is_named(acme: Owner, params: dict[str, str | int]) -> None:
    """A parameter out of range is 400 under its name (decisions §2)."""
    assert list(complaints(acme.http.get("/api/audit", params=params))) == list(params)
