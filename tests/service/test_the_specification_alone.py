"""A client that knows only the specification works unchanged (decisions, first lines)."""

import time
from collections.abc import Iterator

import httpx
import pytest
from support.gateway import PASSWORD, LiveGateway

AGENT = {"id", "name", "description", "status", "created_at", "created_by"}
PERMISSION = {"id", "agent_id", "action", "requires_approval", "max_amount", "created_at"}
RESULT = {"allowed", "requires_approval", "reason", "approval_id"}
ENTRY = {"id", "agent_id", "organization_id", "action", "status", "context", "created_at"}


@pytest.fixture
def user(gateway: LiveGateway) -> Iterator[httpx.Client]:
    """Somebody who registered and logged in as spec §4 says."""
    email = f"reader-{time.time_ns()}@example.test"
    with httpx.Client(base_url=gateway.url, timeout=30) as http:
        account = {"email": email, "password": PASSWORD, "organization_name": "Readers"}
        assert http.post("/auth/register", json=account).status_code == 200
        answer = http.post("/auth/login", json={"email": email, "password": PASSWORD}).json()
        assert answer.keys() == {"access_token", "token_type", "user"}
        http.headers["Authorization"] = f"Bearer {answer['access_token']}"
        yield http


@pytest.fixture
def agent(user: httpx.Client) -> str:
    """An agent, made, read and renamed with the specification's fields."""
    made = user.post("/api/agents", json={"name": "reader"}).json()
    assert made.keys() == AGENT
    path = f"/api/agents/{made['id']}"
    assert user.put(path, json={"name": "second-reader"}).status_code == 200
    assert user.get(path).json() == made | {"name": "second-reader"}
    return str(made["id"])


def test_people_need_no_more_than_the_specification(user: httpx.Client, agent: str) -> None:
    """Permissions and agents are granted, read and deleted with its fields and paths alone."""
    path = f"/api/agents/{agent}/permissions"
    plain = user.post(path, json={"action": "mail.send"})
    bound = user.post(path, json={"action": "pay", "requires_approval": True, "max_amount": 9.5})
    assert (plain.status_code, bound.status_code) == (201, 201)
    assert {permission["action"] for permission in user.get(path).json()} == {"mail.send", "pay"}
    assert bound.json().keys() >= PERMISSION
    assert user.delete(f"{path}/{plain.json()['id']}").status_code == 204
    assert user.delete(f"/api/permissions/{bound.json()['id']}").status_code == 204
    assert user.delete(f"/api/agents/{agent}").status_code == 204
    assert user.get("/api/agents").json() == []


def test_agents_need_no_more_than_the_specification(user: httpx.Client, agent: str) -> None:
    """Without an optional field or header a check has each outcome, and an entry is recorded and listed."""
    for body in (
        {"action": "free"},
        {"action": "held", "requires_approval": True},
        {"action": "pay", "max_amount": 5},
    ):
        assert user.post(f"/api/agents/{agent}/permissions", json=body).status_code == 201
    key = user.post("/api/organization/regenerate-key").json()["api_key"]
    with httpx.Client(base_url=user.base_url, timeout=30, headers={"X-API-Key": key}) as sdk:

        def check(action: str, **fields: object) -> tuple[bool, bool]:
            answer = sdk.post("/sdk/check", json={"agent_id": agent, "action": action, **fields})
            assert (answer.status_code, answer.json().keys()) == (200, RESULT)
            return answer.json()["allowed"], answer.json()["requires_approval"]

        assert check("free") == (True, False)
        assert check("held") == (False, True)
        assert check("never.granted") == (False, False)
        assert check("pay", context={"amount": 6}) == (False, False)
        assert check("pay", context={"amount": 5}) == check("pay") == (True, False)
        recorded = sdk.post("/sdk/log", json={"agent_id": agent, "action": "free", "status": "success"})
    assert (recorded.status_code, recorded.json().keys()) == (200, ENTRY)
    [listed] = user.get("/api/logs", params={"agent_id": agent, "limit": 10, "offset": 0}).json()
    assert listed.keys() >= ENTRY | {"ip_address"}
