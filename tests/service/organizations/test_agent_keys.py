"""Keys that act only as one agent (decisions §3, §4); the API does not make them yet, the file holds one here."""

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.insight import execute
from support.shapes import refused

from toolgate_service.ids import new_id
from toolgate_service.organizations.keys import key_digest


@pytest.fixture
def own_key(gateway: LiveGateway, acme: Owner, bot: str) -> str:
    """A production key of the bot's own."""
    row = new_id()
    key = f"ak_{row.replace('-', '')}00000"
    execute(
        gateway,
        "INSERT INTO api_keys VALUES (?, ?, 'production', ?, ?, ?, '0000', NULL, ?, NULL)",
        row,
        acme.user["organization_id"],
        bot,
        key_digest(key),
        b"\0",
        "2026-01-01T00:00:00.000000Z",
    )
    return key


def send(owner: Owner, key: str, path: str, agent: str) -> httpx.Response:
    body = {"agent_id": agent, "action": "a", "status": "success"}
    return owner.http.post(path, json=body, headers={"X-API-Key": key})


def test_it_acts_as_its_agent(acme: Owner, bot: str, own_key: str) -> None:
    """Its own agent is checked and logged for as with the organization's key."""
    acme.permit(bot, "a")
    assert send(acme, own_key, "/sdk/check", bot).json()["allowed"] is True
    assert send(acme, own_key, "/sdk/log", bot).status_code == 200


def test_it_acts_as_nobody_else(acme: Owner, own_key: str) -> None:
    """Another agent's check is a blocked decision, its log 404, its approval 404."""
    other = acme.agent()
    acme.permit(other, "a")
    acme.permit(other, "held", requires_approval=True)
    approval = acme.check(other, "held").json()["approval_id"]
    blocked = send(acme, own_key, "/sdk/check", other)
    assert (blocked.status_code, blocked.json()["allowed"]) == (200, False)
    assert "own agent" in blocked.json()["reason"]
    refused(send(acme, own_key, "/sdk/log", other), 404, "Agent not found")
    answer = acme.http.get(f"/sdk/approvals/{approval}", headers={"X-API-Key": own_key})
    refused(answer, 404, "Approval not found")


def test_it_tells_nothing_about_other_ids(acme: Owner, rival: Owner, own_key: str) -> None:
    """Existing, unknown and foreign agents look the same through it."""
    agents = (acme.agent(), "unknown", rival.agent())
    reasons = {send(acme, own_key, "/sdk/check", agent).json()["reason"] for agent in agents}
    assert len(reasons) == 1


def test_it_dies_with_its_agent(acme: Owner, bot: str, own_key: str) -> None:
    """After the agent's deletion nothing is allowed and nothing recorded through it."""
    acme.permit(bot, "a")
    acme.http.delete(f"/api/agents/{bot}")
    assert send(acme, own_key, "/sdk/check", bot).json()["allowed"] is False
    refused(send(acme, own_key, "/sdk/log", bot), 404, "Agent not found")
