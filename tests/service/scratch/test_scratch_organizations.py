"""Scratch organizations: created with the operator's token, limited, closed and deleted with all their rows."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from support.gateway import LiveGateway
from support.tables import execute, rows

from toolgate_service.core.clock import wire
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import open_database
from toolgate_service.migrations import metadata
from toolgate_service.scratch.models import ScratchOrganization
from toolgate_service.scratch.service import GRACE, remove_scratch

PATH = "/api/operator/scratch-organizations"
METADATA = metadata.METADATA


def create(operator: httpx.Client, **fields: object) -> dict[str, Any]:
    answer = operator.post(PATH, json=fields)
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


def client_of(user: dict[str, Any], gateway: LiveGateway) -> httpx.Client:
    headers = {"Authorization": f"Bearer {user['access_token']}"}
    return httpx.Client(base_url=gateway.url, headers=headers, timeout=30)


@pytest.fixture(scope="module")
def scratch(operator: httpx.Client) -> Iterator[dict[str, Any]]:
    """A scratch organization, which is closed after the tests."""
    created = create(operator, users=["admin", "member", "viewer"])
    yield created
    assert operator.delete(f"{PATH}/{created['id']}").status_code in {204, 404}


def remove(gateway: LiveGateway, batch: int = 200) -> None:
    """Run the background job once."""

    async def run() -> None:
        database = open_database(gateway.database_url)
        await database.start()
        try:
            await remove_scratch(database, batch)
        finally:
            await database.close()

    asyncio.run(run())


def test_routes_do_not_exist_without_a_token(gateway: LiveGateway) -> None:
    headers = {"Authorization": "Bearer an operator's token for tests"}
    assert httpx.post(f"{gateway.url}{PATH}", json={}, headers=headers).status_code == 404
    assert httpx.delete(f"{gateway.url}{PATH}/x", headers=headers).status_code == 404


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic an operator's token for tests"])
def test_wrong_token_is_rejected(operated: LiveGateway, header: str) -> None:
    answer = httpx.post(f"{operated.url}{PATH}", json={}, headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_wrong_tokens_are_limited(tmp_path: Any) -> None:
    env = {"TOOLGATE_OPERATOR_TOKEN": "a" * 16, "TOOLGATE_FAILED_AUTHENTICATIONS_PER_MINUTE": "2"}
    with LiveGateway(tmp_path, env=env) as gateway:
        answers = [
            httpx.post(f"{gateway.url}{PATH}", json={}, headers={"Authorization": f"Bearer {place}"})
            for place in range(4)
        ]
        assert 429 in {answer.status_code for answer in answers}


def test_short_token_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        Settings(operator_token=SecretStr("short"))


def test_users_have_their_roles_and_sessions(scratch: dict[str, Any], operated: LiveGateway) -> None:
    assert [user["role"] for user in scratch["users"]] == ["admin", "member", "viewer"]
    for user in scratch["users"]:
        with client_of(user, operated) as client:
            shown = client.get("/auth/me").json()
            assert (shown["id"], shown["email"]) == (user["id"], user["email"])
            assert shown["organization_id"] == scratch["id"]
            assert user["email"].endswith(".invalid")


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_in_seconds": 59},
        {"expires_in_seconds": 3601},
        {"users": []},
        {"users": ["member"]},
        {"users": ["admin"] * 21},
        {"users": ["owner"]},
        {"plan": "free"},
    ],
)
def test_invalid_fields_are_rejected(operator: httpx.Client, fields: dict[str, object]) -> None:
    assert operator.post(PATH, json=fields).status_code == 400


def test_expiry_is_at_most_one_hour(operator: httpx.Client) -> None:
    created = create(operator, expires_in_seconds=3600)
    expires = datetime.fromisoformat(created["expires_at"])
    assert expires <= datetime.now(UTC) + timedelta(seconds=3601)
    operator.delete(f"{PATH}/{created['id']}")


def test_scratch_organization_cannot_invite(scratch: dict[str, Any], operated: LiveGateway) -> None:
    with client_of(scratch["users"][0], operated) as admin:
        answer = admin.post("/api/team/invitations", json={"email": "a@example.test", "role": "member"})
        assert answer.status_code == 403


def test_closed_organization_is_inactive(operator: httpx.Client, operated: LiveGateway) -> None:
    created = create(operator)
    with client_of(created["users"][0], operated) as admin:
        key = admin.get("/api/organization").json()["api_key"]
        assert operator.delete(f"{PATH}/{created['id']}").status_code == 204
        assert operator.delete(f"{PATH}/{created['id']}").status_code == 204
        answer = admin.post("/api/agents", json={"name": "bot"})
        assert answer.status_code == 403
    body = {"agent_id": "x", "action": "a"}
    checked = httpx.post(f"{operated.url}/sdk/check", json=body, headers={"X-API-Key": key})
    assert checked.status_code == 401


def test_other_organizations_cannot_be_deleted(operator: httpx.Client, operated: LiveGateway) -> None:
    registration = {
        "email": "owner@normal.test",
        "password": "correct horse battery",
        "organization_name": "Normal",
    }
    user = httpx.post(f"{operated.url}/auth/register", json=registration).json()["user"]
    assert operator.delete(f"{PATH}/{user['organization_id']}").status_code == 404
    assert operator.delete(f"{PATH}/not-an-id").status_code == 404


def use(created: dict[str, Any], gateway: LiveGateway) -> None:
    """Create rows in many tables: agents, approvals, budgets, decisions, log entries, freezes and a log."""
    with client_of(created["users"][0], gateway) as admin:
        key = {"X-API-Key": admin.get("/api/organization").json()["api_key"]}
        agent = admin.post("/api/agents", json={"name": "bot"}).json()["id"]
        for permission in ({"action": "a.run"}, {"action": "a.ask", "requires_approval": True}):
            assert admin.post(f"/api/agents/{agent}/permissions", json=permission).status_code == 201
        budget = {"name": "calls", "actions": ["a.*"], "window": "hour", "limit": 5, "at_limit": "deny"}
        assert admin.post("/api/budgets", json=budget).status_code == 201
        rule = {"name": "no", "effect": "forbid", "actions": ["b.*"]}
        assert admin.post("/api/rules", json=rule).status_code == 201
        for action in ("a.run", "a.ask", "c"):
            assert admin.post(
                "/sdk/check", json={"agent_id": agent, "action": action}, headers=key
            ).is_success
        held = admin.get("/api/approvals").json()[0]["id"]
        assert admin.post(
            f"/api/approvals/{held}/approve", json={"grant": {"max_uses": 2, "duration_seconds": 60}}
        ).is_success
        assert admin.post("/sdk/check", json={"agent_id": agent, "action": "a.ask"}, headers=key).is_success
        entry = {"agent_id": agent, "action": "a.run", "status": "success"}
        assert admin.post("/sdk/log", json=entry, headers=key | {"Idempotency-Key": "1"}).is_success
        assert admin.post("/api/freeze", json={"reason": "test"}).status_code == 201


def count_rows(gateway: LiveGateway, organization_id: str) -> dict[str, int]:
    """Return the numbers of rows of an organization, by table, without empty tables."""
    counts = {}
    for table in METADATA.sorted_tables:
        column = "id" if table.name == "organizations" else "organization_id"
        if column in table.c:
            query = f"SELECT count(*) FROM {table.name} WHERE {column} = ?"
            counts[table.name] = rows(gateway, query, organization_id)[0][0]
    return {name: count for name, count in counts.items() if count}


def set_time(gateway: LiveGateway, organization_id: str, column: str, moment: datetime) -> None:
    statement = f"UPDATE scratch_organizations SET {column} = ? WHERE organization_id = ?"
    assert execute(gateway, statement, wire(moment), organization_id) == 1


def test_every_row_is_deleted_after_the_grace_period(operator: httpx.Client, operated: LiveGateway) -> None:
    kept, created = create(operator), create(operator)
    for one in (kept, created):
        use(one, operated)
    assert len(count_rows(operated, created["id"])) > 15
    before = count_rows(operated, kept["id"])
    assert operator.delete(f"{PATH}/{created['id']}").status_code == 204
    remove(operated)
    assert ScratchOrganization.__tablename__ in count_rows(operated, created["id"])
    set_time(operated, created["id"], "closed_at", datetime.now(UTC) - GRACE - timedelta(minutes=1))
    # With small batches, an organization needs several transactions for each table.
    remove(operated, 3)
    assert count_rows(operated, created["id"]) == {}
    assert before.keys() <= count_rows(operated, kept["id"]).keys()
    checkpoint = httpx.get(f"{operated.url}/tlog/{created['id']}/production/checkpoint")
    assert checkpoint.status_code == 404
    assert operator.delete(f"{PATH}/{created['id']}").status_code == 404
    operator.delete(f"{PATH}/{kept['id']}")


def test_expired_organization_is_closed(operator: httpx.Client, operated: LiveGateway) -> None:
    created = create(operator)
    set_time(operated, created["id"], "expires_at", datetime.now(UTC) - timedelta(seconds=1))
    remove(operated)
    with client_of(created["users"][0], operated) as admin:
        assert admin.get("/api/organization").json()["is_active"] is False


def test_number_of_organizations_is_limited(operator: httpx.Client) -> None:
    created, refused = [], None
    for _ in range(21):
        answer = operator.post(PATH, json={})
        if answer.status_code == 429:
            refused = answer
            break
        created.append(answer.json()["id"])
    assert refused is not None
    assert refused.headers["retry-after"] == "60"
    for one in created:
        assert operator.delete(f"{PATH}/{one}").status_code == 204
