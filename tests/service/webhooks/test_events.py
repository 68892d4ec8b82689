"""Events of each change: the resource as in the API, in its environment, without secrets."""

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.hooked import Hook
from support.insight import set_plan
from support.receiver import Got, Receiver
from support.tables import execute, rows

from toolgate_service.core.ids import is_id


def only(found: list[Got]) -> dict[str, Any]:
    """Return the data of the only event."""
    (got,) = found
    assert is_id(got.id)
    data: dict[str, Any] = got.event["data"]
    return data


def test_agents(told: Owner, receiver: Receiver) -> None:
    """Each event shows the agent as it was after the change."""
    hook = Hook(told, receiver)
    agent = told.agent("First")
    path = f"/api/agents/{agent}"
    made = told.http.get(path).json()
    changed = told.http.put(path, json={"name": "Second", "status": "inactive"}).json()
    assert told.http.delete(path).status_code == 204
    where = {"organization_id": told.user["organization_id"], "environment": "production"}
    assert only(hook.told("agent.created")) == where | {"agent": made}
    assert only(hook.told("agent.updated")) == where | {"agent": changed}
    assert only(hook.told("agent.deleted")) == where | {"agent": changed}


def test_permissions(told: Owner, receiver: Receiver) -> None:
    """Created, updated, deleted by either path; amounts keep their digits."""
    hook = Hook(told, receiver)
    agent = told.agent()
    amount = "1234567890123456789.000000001"
    answer = told.http.post(
        f"/api/agents/{agent}/permissions", content=f'{{"action":"pay","max_amount":{amount}}}'.encode()
    )
    permission = answer.json()["id"]
    (got,) = hook.told("permission.created")
    assert f'"max_amount":{amount},'.encode() in got.body
    shown = json.loads(got.body, parse_float=Decimal)["data"]["permission"]
    assert shown == json.loads(answer.content, parse_float=Decimal)
    changed = told.http.put(f"/api/permissions/{permission}", json={"max_amount": 5}).json()
    assert only(hook.told("permission.updated"))["permission"] == changed
    assert told.http.delete(f"/api/permissions/{permission}").status_code == 204
    assert only(hook.told("permission.deleted"))["permission"] == changed
    other = told.permit(agent, "pay")
    assert told.http.delete(f"/api/agents/{agent}/permissions/{other}").status_code == 204
    assert hook.told("permission.deleted", 2)[-1].event["data"]["permission"]["id"] == other


def test_approvals(told: Owner, receiver: Receiver) -> None:
    """Requested, approved, consumed; the context only with `include_context`."""
    hook = Hook(told, receiver)
    agent = told.agent()
    told.permit(agent, "db.drop", requires_approval=True)
    with Receiver() as other:
        curious = Hook(told, other, "approval.requested", include_context=True)
        approval = told.check(agent, "db.drop", {"table": "t4bl3"}, reason="t4bl3 is empty").json()[
            "approval_id"
        ]
        requested = told.http.get(f"/api/approvals/{approval}").json()
        assert only(curious.told("approval.requested"))["approval"] == requested
    approved = told.http.post(f"/api/approvals/{approval}/approve").json()
    assert told.check(agent, "db.drop", {"table": "t4bl3"}).json()["allowed"] is True
    consumed = told.http.get(f"/api/approvals/{approval}").json()
    for kind, shown in (("requested", requested), ("approved", approved), ("consumed", consumed)):
        (got,) = hook.told(f"approval.{kind}")
        expected = {name: shown[name] for name in shown.keys() - {"context", "approved_context", "reason"}}
        # Only admins see the credential of a vote.
        expected["votes"] = [vote | {"credential": None} for vote in shown["votes"]]
        assert got.event["data"]["approval"] == expected
        assert b"t4bl3" not in got.body


@pytest.mark.parametrize(
    ("path", "environment"), [("regenerate-key", "production"), ("test-key/regenerate", "test")]
)
def test_a_regenerated_key_is_not_told(told: Owner, receiver: Receiver, path: str, environment: str) -> None:
    """The event shows the organization, and neither the former nor the new key."""
    former = told.key
    hook = Hook(told, receiver, environment=environment)
    key = told.http.post(f"/api/organization/{path}").json()["api_key"]
    data = only(hook.told("organization.key_regenerated"))
    shown = told.http.get("/api/organization").json()
    del shown["api_key"]
    assert data["organization"] == shown
    for secret in (former, key, key[-4:]):
        assert secret not in receiver.got[-1].body.decode()


def test_what_is_refused_is_not_told(told: Owner, receiver: Receiver) -> None:
    """A request that changes nothing emits no event."""
    hook = Hook(told, receiver)
    agent = told.agent()
    told.permit(agent, "x")
    assert told.http.post(f"/api/agents/{agent}/permissions", json={"action": "x"}).status_code == 400
    assert told.http.put(f"/api/agents/{agent}", json={"status": "asleep"}).status_code == 400
    assert told.http.delete("/api/agents/nobody").status_code == 404
    hook.told("permission.created")
    assert [got.event["type"] for got in hook.settled(2) and receiver.got] == [
        "agent.created",
        "permission.created",
    ]


def test_log_entries_are_told_to_whoever_names_them(told: Owner, receiver: Receiver) -> None:
    """One event per entry from both endpoints; a webhook without `events` receives none."""
    agent = told.agent("Logger")
    Hook(told, receiver, "log.created", include_context=True)
    with Receiver() as other:
        default = Hook(told, other)
        told.log(agent, "a", context={"n": 1.5, "deep": {"é": [None, True]}})
        entries = [{"agent_id": agent, "action": f"many.{number}", "status": "failed"} for number in range(5)]
        answer = told.http.post(
            "/sdk/logs", json={"entries": [*entries, {"agent_id": agent}]}, headers={"X-API-Key": told.key}
        )
        assert [one["status"] for one in answer.json()["results"]] == [200] * 5 + [400]
        received = receiver.wait(6)
        shown = {got.event["data"]["log"]["id"]: got.event["data"]["log"] for got in received}
        assert shown == {entry["id"]: entry for entry in told.entries()}
        told.agent()
        default.told("agent.created")
        assert {got.event["type"] for got in other.got} == {"agent.created"}
    assert len(receiver.got) == 6


def test_contexts_are_told_only_to_whoever_asked(told: Owner, receiver: Receiver) -> None:
    """Without `include_context` there is no `context` at all; with it, every digit."""
    agent = told.agent()
    Hook(told, receiver, "log.created")
    with Receiver() as other:
        Hook(told, other, "log.created", include_context=True)
        number = "12345678901234567890.5"
        body = f'{{"agent_id":"{agent}","action":"a","status":"success","context":{{"secret":"s3cr3t","n":{number}}}}}'
        told.http.post("/sdk/log", content=body.encode(), headers={"X-API-Key": told.key})
        (without,), (within,) = receiver.wait(), other.wait()
    assert "context" not in without.event["data"]["log"]
    assert b"s3cr3t" not in without.body
    assert f'"context":{{"n":{number},"secret":"s3cr3t"}}'.encode() in within.body
    assert without.id == within.id


def test_a_repeated_entry_is_told_once(told: Owner, receiver: Receiver) -> None:
    """A replay emits no event."""
    agent = told.agent()
    hook = Hook(told, receiver, "log.created")
    body = {"agent_id": agent, "action": "once", "status": "success"}
    for _ in range(3):
        told.http.post("/sdk/log", json=body, headers={"X-API-Key": told.key, "Idempotency-Key": "k"})
    told.log(agent, "twice")
    actions = [got.event["data"]["log"]["action"] for got in hook.told("log.created", 2)]
    assert sorted(actions) == ["once", "twice"]
    assert len(receiver.got) == 2


def fill(gateway: LiveGateway, owner: Owner, used: int) -> None:
    """Set the number of entries of the month."""
    statement = "UPDATE monthly_usage SET log_entries = ? WHERE organization_id = ?"
    assert execute(gateway, statement, used, owner.user["organization_id"]) == 1


def test_the_month_warns_once_at_each_threshold(teller: LiveGateway, told: Owner, receiver: Receiver) -> None:
    """One event at 80 % and one at 100 %, also with concurrent entries."""
    set_plan(teller, told, "pro")
    agent = told.agent()
    hook = Hook(told, receiver)
    told.log(agent, "x")
    fill(teller, told, 39_990)
    with ThreadPoolExecutor(8) as pool:
        assert {answer.status_code for answer in pool.map(lambda _: told.log(agent, "x"), range(20))} == {200}
    data = only(hook.told("usage.warning"))
    assert data["usage"] == {
        "type": "logs",
        "severity": "warning",
        "message": "The pro plan's limit of logs is near: 40000/50000 used",
        "current": 40_000,
        "limit": 50_000,
        "percentage": 80,
        "plan": "pro",
    }
    fill(teller, told, 49_995)
    with ThreadPoolExecutor(8) as pool:
        statuses = [answer.status_code for answer in pool.map(lambda _: told.log(agent, "x"), range(10))]
    assert sorted(statuses) == [200] * 5 + [403] * 5
    warnings = [got.event["data"]["usage"] for got in hook.told("usage.warning", 2)]
    assert [(one["severity"], one["current"]) for one in warnings] == [
        ("warning", 40_000),
        ("critical", 50_000),
    ]
    kinds = rows(teller, "SELECT kind FROM events WHERE organization_id = ?", told.user["organization_id"])
    assert kinds == [("usage.warning",)] * 2


def test_agents_warn_too(teller: LiveGateway, told: Owner, receiver: Receiver) -> None:
    """Events for the eighth and the tenth of ten agents; those of the test environment do not count."""
    set_plan(teller, told, "pro")
    hook = Hook(told, receiver, "usage.warning")
    test = Hook(told, receiver, "usage.warning", environment="test")
    for _ in range(10):
        told.agent()
        told.http.post("/api/agents", json={"name": "test"}, params={"environment": "test"})
    warnings = [got.event["data"]["usage"] for got in hook.told("usage.warning", 2)]
    assert sorted((one["type"], one["severity"], one["current"]) for one in warnings) == [
        ("agents", "critical", 10),
        ("agents", "warning", 8),
    ]
    assert test.deliveries() == []


def test_a_plan_without_webhooks_has_no_log_events(
    teller: LiveGateway, told: Owner, receiver: Receiver
) -> None:
    """After a downgrade log entries emit no events either."""
    agent = told.agent()
    Hook(told, receiver, "log.created", "usage.warning")
    set_plan(teller, told, "free")
    assert told.log(agent, "x").status_code == 200
    count = "SELECT count(*) FROM events WHERE organization_id = ?"
    assert rows(teller, count, told.user["organization_id"]) == [(0,)]
