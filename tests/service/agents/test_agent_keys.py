"""Keys that act only as one agent (decisions §3, §4, §9)."""

import re
from collections.abc import Iterator

import httpx
import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import rows, set_role
from support.shapes import MOMENT, UUID7, refused

UNKNOWN = "01890000-0000-7000-8000-000000000000"
FORMATS = {"production": re.compile(r"ak_[a-z0-9]{37}"), "test": re.compile(r"test_[a-z0-9]{35}")}


def make(owner: Owner, agent: str, environment: str = "production") -> dict[str, str]:
    answer = owner.http.post(f"/api/agents/{agent}/keys", params={"environment": environment})
    assert answer.status_code == 201, answer.text
    made: dict[str, str] = answer.json()
    return made


def send(owner: Owner, key: str, path: str, agent: str) -> httpx.Response:
    body = {"agent_id": agent, "action": "a", "status": "success"}
    return owner.http.post(path, json=body, headers={"X-API-Key": key})


def audited(gateway: LiveGateway, agent: str) -> list[str]:
    query = "SELECT kind FROM audit_entries WHERE resource_id = ? AND kind LIKE 'agent.key%' ORDER BY id"
    return [kind for (kind,) in rows(gateway, query, agent)]


@pytest.fixture
def own_key(acme: Owner, bot: str) -> str:
    """A key of the bot's own."""
    return make(acme, bot)["api_key"]


@pytest.mark.parametrize("environment", ["production", "test"])
def test_a_new_key_is_shown_whole_and_again(acme: Owner, environment: str) -> None:
    """POST answers 201 with a key in its environment's format, GET shows it again, neither is cached."""
    where = {"environment": environment}
    agent = acme.http.post("/api/agents", json={"name": "keyed"}, params=where).json()["id"]
    path = f"/api/agents/{agent}/keys"
    assert acme.http.get(path, params=where).json() == []
    answer = acme.http.post(path, params=where)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    key = answer.json()
    assert set(key) == {"id", "agent_id", "api_key", "advisory", "created_at", "created_by"}
    assert key["advisory"] is False
    assert UUID7.fullmatch(key["id"])
    assert MOMENT.fullmatch(key["created_at"])
    assert (key["agent_id"], key["created_by"]) == (agent, acme.user["id"])
    assert FORMATS[environment].fullmatch(key["api_key"])
    newer = make(acme, agent, environment)
    listing = acme.http.get(path, params=where)
    assert listing.json() == [newer, key]
    assert listing.headers["Cache-Control"] == "no-store"
    assert send(acme, key["api_key"], "/sdk/log", agent).status_code == 200


@pytest.mark.parametrize(
    ("body", "advisory"), [({"advisory": True}, True), ({"advisory": False}, False), ({}, False)]
)
def test_key_is_advisory_on_demand(acme: Owner, bot: str, body: dict[str, bool], advisory: bool) -> None:
    made = acme.http.post(f"/api/agents/{bot}/keys", json=body)
    assert made.status_code == 201
    [listed] = acme.http.get(f"/api/agents/{bot}/keys").json()
    assert made.json()["advisory"] is listed["advisory"] is advisory


@pytest.mark.parametrize("body", [{"advisory": "yes"}, {"advisory": None}, {"other": True}])
def test_invalid_body_of_a_new_key_is_rejected(acme: Owner, bot: str, body: dict[str, object]) -> None:
    assert acme.http.post(f"/api/agents/{bot}/keys", json=body).status_code == 400
    assert acme.http.get(f"/api/agents/{bot}/keys").json() == []


def test_audit_log_names_advisory_keys(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    acme.http.post(f"/api/agents/{bot}/keys", json={"advisory": True})
    query = "SELECT changes FROM audit_entries WHERE resource_id = ? AND kind = 'agent.key_created'"
    [[changes]] = rows(gateway, query, bot)
    assert '"advisory":true' in changes


def test_making_showing_and_deleting_are_audited_without_the_key(
    gateway: LiveGateway, acme: Owner, bot: str
) -> None:
    """Who made, saw and deleted a key is in the management audit; the key is not (decisions §3)."""
    path = f"/api/agents/{bot}/keys"
    acme.http.get(path)
    key = make(acme, bot)
    acme.http.get(path)
    assert acme.http.delete(f"{path}/{key['id']}").status_code == 204
    assert audited(gateway, bot) == ["agent.key_created", "agent.keys_shown", "agent.key_deleted"]
    told = rows(gateway, "SELECT changes, user_id FROM audit_entries WHERE resource_id = ?", bot)
    assert all(key["api_key"] not in (changes or "") for changes, _ in told)
    assert {user for _, user in told} == {acme.user["id"]}


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
    assert "belongs to another agent" in blocked.json()["reason"]
    refused(send(acme, own_key, "/sdk/log", other), 404, "Agent not found")
    path, headers = f"/sdk/approvals/{approval}", {"X-API-Key": own_key}
    refused(acme.http.get(path, headers=headers), 404, "Approval not found")
    refused(acme.http.post(f"{path}/cancel", headers=headers), 404, "Approval not found")
    assert acme.http.get(f"/api/approvals/{approval}").json()["status"] == "pending"


def test_it_tells_nothing_about_other_ids(acme: Owner, rival: Owner, own_key: str) -> None:
    """Existing, unknown and foreign agents look the same through it."""
    agents = (acme.agent(), UNKNOWN, rival.agent())
    reasons = {send(acme, own_key, "/sdk/check", agent).json()["reason"] for agent in agents}
    assert len(reasons) == 1


def test_a_deleted_key_is_dead_at_once_and_others_live(acme: Owner, bot: str) -> None:
    """DELETE is 204, the very next check is 401; the agent's other key goes on; again it is 404."""
    first, second = make(acme, bot), make(acme, bot)
    assert send(acme, first["api_key"], "/sdk/check", bot).status_code == 200
    path = f"/api/agents/{bot}/keys/{first['id']}"
    answer = acme.http.delete(path)
    assert (answer.status_code, answer.content) == (204, b"")
    refused(send(acme, first["api_key"], "/sdk/check", bot), 401, "Invalid API key")
    assert send(acme, second["api_key"], "/sdk/check", bot).status_code == 200
    assert acme.http.get(f"/api/agents/{bot}/keys").json() == [second]
    refused(acme.http.delete(path), 404, "Key not found")


def test_it_dies_with_its_agent(acme: Owner, bot: str, own_key: str) -> None:
    """After the agent's deletion its keys are no keys: 401 on every path."""
    acme.permit(bot, "a")
    assert acme.http.delete(f"/api/agents/{bot}").status_code == 204
    for path in ("/sdk/check", "/sdk/log"):
        refused(send(acme, own_key, path, bot), 401, "Invalid API key")
    refused(acme.http.get(f"/api/agents/{bot}/keys"), 404, "Agent not found")


def test_regenerating_the_organizations_key_leaves_it_alone(newcomer: Owner) -> None:
    """The organization's key and the agents' keys are replaced apart from each other."""
    bot = newcomer.agent()
    key = make(newcomer, bot)["api_key"]
    newcomer.http.post("/api/organization/regenerate-key")
    assert send(newcomer, key, "/sdk/check", bot).status_code == 200


def test_a_key_is_deleted_through_its_own_agent_alone(acme: Owner, rival: Owner, bot: str) -> None:
    """Another agent's, another environment's and another organization's path do not find it."""
    key = make(acme, bot)
    for http, agent, where, what in (
        (acme.http, acme.agent(), "production", "Key"),
        (acme.http, bot, "test", "Agent"),
        (rival.http, bot, "production", "Agent"),
        (rival.http, rival.agent(), "production", "Key"),
        (acme.http, UNKNOWN, "production", "Agent"),
    ):
        path = f"/api/agents/{agent}/keys/{key['id']}"
        refused(http.delete(path, params={"environment": where}), 404, f"{what} not found")
    for unknown in (UNKNOWN, "x"):
        refused(acme.http.delete(f"/api/agents/{bot}/keys/{unknown}"), 404, "Key not found")
    assert send(acme, key["api_key"], "/sdk/check", bot).status_code == 200


def test_an_agent_has_at_most_a_hundred_keys(acme: Owner, bot: str) -> None:
    """The next one is 409 and tells the cure; deleting one makes room."""
    keys = [make(acme, bot) for _ in range(100)]
    path = f"/api/agents/{bot}/keys"
    refused(
        acme.http.post(path),
        409,
        "The agent already has 100 API keys, which is the maximum; revoke one first",
    )
    acme.http.delete(f"{path}/{keys[0]['id']}")
    make(acme, bot)
    assert len(acme.http.get(path).json()) == 100


@pytest.fixture
def demoted(gateway: LiveGateway) -> Iterator[Owner]:
    """An organization whose only user a test may demote."""
    with Owner(gateway.url, organization="Demoted") as owner:
        yield owner


def test_only_an_admin_makes_sees_and_deletes_keys(gateway: LiveGateway, demoted: Owner) -> None:
    """Members and viewers see prefix and last four characters, and change nothing (decisions §9)."""
    bot = demoted.agent()
    key = make(demoted, bot)
    path = f"/api/agents/{bot}/keys"
    for role in ("member", "viewer"):
        set_role(gateway, demoted, role)
        [seen] = demoted.http.get(path).json()
        assert seen == key | {"api_key": f"ak_…{key['api_key'][-4:]}"}
        for answer in (demoted.http.post(path), demoted.http.delete(f"{path}/{key['id']}")):
            assert answer.status_code == 403
            assert role in answer.json()["detail"]
    assert audited(gateway, bot) == ["agent.key_created"]


def test_a_cli_token_sees_no_agents_key(acme: Owner, bot: str) -> None:
    """An admin's `cli` token shows, makes and deletes no key (decisions §9)."""
    key = make(acme, bot)
    body = {"email": acme.email, "password": PASSWORD, "scope": "cli"}
    token = acme.http.post("/auth/login", json=body).json()["access_token"]
    path, headers = f"/api/agents/{bot}/keys", {"Authorization": f"Bearer {token}"}
    [seen] = acme.http.get(path, headers=headers).json()
    assert seen["api_key"] == f"ak_…{key['api_key'][-4:]}"
    assert acme.http.post(path, headers=headers).status_code == 403
    assert acme.http.delete(f"{path}/{key['id']}", headers=headers).status_code == 403
