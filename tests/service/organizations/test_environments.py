"""Production and test: two worlds of one organization (decisions §8)."""

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test, rows
from support.shapes import complaints, refused
from support.usage import use_logs

TEST = {"environment": "test"}


@pytest.fixture(scope="module")
def rehearsal_key(gateway: LiveGateway, acme: Owner) -> str:
    return key_to_test(gateway, acme)


@pytest.fixture
def rehearsal(acme: Owner) -> str:
    """An agent of the test environment that may do `x.y`, and `held` with approval."""
    made = acme.http.post("/api/agents", json={"name": "rehearsal"}, params=TEST)
    agent_id = str(made.json()["id"])
    for action, held in (("x.y", False), ("held", True)):
        body = {"action": action, "requires_approval": held}
        answer = acme.http.post(f"/api/agents/{agent_id}/permissions", json=body, params=TEST)
        assert answer.status_code == 201
    return agent_id


def ask(owner: Owner, key: str, agent_id: str, action: str = "x.y") -> httpx.Response:
    body = {"agent_id": agent_id, "action": action}
    return owner.http.post("/sdk/check", json=body, headers={"X-API-Key": key})


def test_a_key_sees_only_agents_of_its_environment(
    acme: Owner, bot: str, rehearsal: str, rehearsal_key: str
) -> None:
    """An agent of the other environment is an unknown agent, in both directions."""
    acme.permit(bot, "x.y")
    assert ask(acme, rehearsal_key, rehearsal).json()["allowed"] is True
    assert ask(acme, acme.key, bot).json()["allowed"] is True
    unknown = ask(acme, acme.key, "01890000-0000-7000-8000-000000000000").json()
    assert ask(acme, acme.key, rehearsal).json() == unknown
    assert ask(acme, rehearsal_key, bot).json() == unknown


def test_management_selects_the_environment_by_query(acme: Owner, bot: str, rehearsal: str) -> None:
    """`environment=test` shows test agents alone, its absence production agents alone."""
    production = {agent["id"] for agent in acme.http.get("/api/agents").json()}
    test = {agent["id"] for agent in acme.http.get("/api/agents", params=TEST).json()}
    assert (bot in production, rehearsal in production) == (True, False)
    assert (bot in test, rehearsal in test) == (False, True)
    refused(acme.http.get(f"/api/agents/{rehearsal}"), 404, "Agent not found")
    refused(acme.http.get(f"/api/agents/{bot}", params=TEST), 404, "Agent not found")
    refused(acme.http.get(f"/api/agents/{rehearsal}/permissions"), 404, "Agent not found")


def test_logs_of_one_environment_do_not_show_in_the_other(
    acme: Owner, bot: str, rehearsal: str, rehearsal_key: str
) -> None:
    """An entry is recorded and listed where its key belongs."""
    body = {"agent_id": rehearsal, "action": "x.y", "status": "success"}
    headers = {"X-API-Key": rehearsal_key}
    assert acme.http.post("/sdk/log", json=body, headers=headers).status_code == 200
    refused(
        acme.http.post("/sdk/log", json=body | {"agent_id": bot}, headers=headers), 404, "Agent not found"
    )
    refused(acme.log(rehearsal, "x.y"), 404, "Agent not found")
    assert len(acme.entries(agent_id=rehearsal, environment="test")) == 1
    assert acme.entries(agent_id=rehearsal) == []


def test_the_same_idempotency_key_means_two_entries_in_two_environments(
    acme: Owner, bot: str, rehearsal: str, rehearsal_key: str
) -> None:
    """Keys are remembered per organization and environment (decisions §6)."""
    headers = {"Idempotency-Key": "shared"}
    answers = [
        acme.http.post(
            "/sdk/log",
            json={"agent_id": agent, "action": "x.y", "status": "success"},
            headers=headers | {"X-API-Key": key},
        )
        for agent, key in ((bot, acme.key), (rehearsal, rehearsal_key))
    ]
    assert ["Idempotency-Replayed" in answer.headers for answer in answers] == [False, False]


def test_approvals_of_one_environment_do_not_show_in_the_other(
    acme: Owner, rehearsal: str, rehearsal_key: str
) -> None:
    """A held check of the test environment is decided there, and only its key can follow it."""
    approval = ask(acme, rehearsal_key, rehearsal, "held").json()["approval_id"]
    path = f"/api/approvals/{approval}"
    refused(acme.http.get(path), 404, "Approval not found")
    refused(acme.http.post(f"{path}/approve"), 404, "Approval not found")
    answer = acme.http.get(f"/sdk/approvals/{approval}", headers={"X-API-Key": acme.key})
    refused(answer, 404, "Approval not found")
    assert acme.http.post(f"{path}/approve", params=TEST).status_code == 200
    assert ask(acme, rehearsal_key, rehearsal, "held").json()["allowed"] is True


def test_test_data_counts_against_no_plan_limit(free_gateway: LiveGateway, frugal: Owner) -> None:
    """The free plan's two agents are production agents; its thousand entries are production entries."""
    made = [frugal.http.post("/api/agents", json={"name": "t"}, params=TEST) for _ in range(4)]
    assert [answer.status_code for answer in made] == [201] * 4
    frugal.agent()
    frugal.agent()
    assert frugal.http.post("/api/agents", json={"name": "third"}).status_code == 403
    assert frugal.http.post("/api/agents", json={"name": "t"}, params=TEST).status_code == 201
    key, body = key_to_test(free_gateway, frugal), {"agent_id": made[0].json()["id"], "action": "x"}
    use_logs(free_gateway, frugal, 5_000, "test")
    answer = frugal.http.post("/sdk/log", json=body | {"status": "success"}, headers={"X-API-Key": key})
    assert answer.status_code == 200
    counted = "SELECT environment, log_entries FROM monthly_usage WHERE organization_id = ?"
    organization = frugal.user["organization_id"]
    assert rows(free_gateway, counted, organization) == [("test", 5_001)]


@pytest.mark.parametrize("path", ["/api/agents", "/api/logs", "/api/approvals"])
def test_another_environment_is_refused_by_name(acme: Owner, path: str) -> None:
    """There are two environments, and a misspelt one is not silently production."""
    assert list(complaints(acme.http.get(path, params={"environment": "staging"}))) == ["environment"]
