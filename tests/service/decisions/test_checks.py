"""The record that each kind of check leaves."""

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.budgets import ACTION, create
from support.decisions import decision_id, recorded
from support.gateway import LiveGateway, Owner
from support.shapes import MOMENT
from support.tables import execute, rows

UNKNOWN = "01890000-0000-7000-8000-000000000000"


def count(gateway: LiveGateway, owner: Owner) -> int:
    query = "SELECT count(*) FROM decisions WHERE organization_id = ?"
    number: int = rows(gateway, query, owner.user["organization_id"])[0][0]
    return number


def facts(record: dict[str, Any]) -> tuple[str, str, str | None]:
    return record["outcome"], record["reason_code"], record["approval_id"]


def test_record_contains_the_check_and_its_decision(newcomer: Owner) -> None:
    agent = newcomer.agent("refund-bot")
    permission = newcomer.permit(agent, "stripe.refund", max_amount=50)
    answer = newcomer.check(agent, "stripe.refund", {"amount": 12.50, "to": "ü"}, run_id="r", call_id="c")
    [record] = recorded(newcomer, decision_id(answer))
    assert MOMENT.fullmatch(record.pop("created_at"))
    assert len(record.pop("key_id")) == 36
    assert record.pop("policy_revision") > 0
    assert record == {
        "id": decision_id(answer),
        "organization_id": newcomer.user["organization_id"],
        "environment": "production",
        "agent_id": agent,
        "agent_name": "refund-bot",
        "requested_agent": None,
        "action": "stripe.refund",
        "run_id": "r",
        "call_id": "c",
        "context_digest": hashlib.sha256('{"amount":12.5,"to":"ü"}'.encode()).hexdigest(),
        "permission_id": permission,
        "rule_id": None,
        "outcome": "allowed",
        "reason_code": "allowed",
        "approval_id": None,
    }
    one = newcomer.http.get(f"/api/decisions/{decision_id(answer)}").json()
    assert {name: one[name] for name in record} == record


def test_context_is_stored_but_not_returned(gateway: LiveGateway, newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay")
    newcomer.permit(agent, "ask", requires_approval=True)
    answers = [newcomer.check(agent, action, {"amount": 2.0, "n": 1}) for action in ("pay", "ask")]
    answers.append(newcomer.check(agent, "pay", {"text": "x" * 4000}))
    for record in recorded(newcomer, *map(decision_id, answers)):
        assert "context" not in record
    query = "SELECT context FROM decisions WHERE organization_id = ? ORDER BY created_at, id"
    stored = rows(gateway, query, newcomer.user["organization_id"])
    assert stored == [('{"amount":2.0,"n":1}',), ('{"amount":2.0,"n":1}',), (None,)]


def test_context_is_not_stored_without_a_retention(tmp_path: Path) -> None:
    env = {"TOOLGATE_DECISION_CONTEXT_DAYS": "0"}
    with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "pay")
        owner.permit(agent, "ask", requires_approval=True)
        answers = [owner.check(agent, action, {"amount": 2}) for action in ("pay", "ask")]
        recorded(owner, *map(decision_id, answers))
        assert rows(gateway, "SELECT context FROM decisions") == [(None,), (None,)]


def test_every_denial_without_a_write_leaves_one_record(gateway: LiveGateway, newcomer: Owner) -> None:
    agent, disabled = newcomer.agent(), newcomer.agent()
    newcomer.permit(agent, "pay", max_amount=5, amount_required=True)
    newcomer.http.put(f"/api/agents/{disabled}", json={"status": "inactive"})
    asked = {
        "no_permission": (agent, "other", {}),
        "amount_missing": (agent, "pay", {}),
        "amount_invalid": (agent, "pay", {"amount": "5"}),
        "amount_exceeded": (agent, "pay", {"amount": 6}),
        "agent_disabled": (disabled, "pay", {}),
        "agent_not_found": (UNKNOWN, "pay", {}),
    }
    answers = {code: newcomer.check(*arguments) for code, arguments in asked.items()}
    assert {code: one.headers["x-reason-code"] for code, one in answers.items()} == {
        code: code for code in asked
    }
    found = recorded(newcomer, *map(decision_id, answers.values()))
    assert [facts(one) for one in found] == [("denied", code, None) for code in asked]
    assert (found[-1]["agent_id"], found[-1]["agent_name"], found[-1]["requested_agent"]) == (
        None,
        None,
        UNKNOWN,
    )
    assert found[0]["agent_id"] == agent
    assert count(gateway, newcomer) == len(asked)


def test_policy_revision_changes_with_the_permissions(newcomer: Owner) -> None:
    agent = newcomer.agent()
    first = decision_id(newcomer.check(agent, "a.b"))
    newcomer.permit(agent, "a.b")
    second, third = (decision_id(newcomer.check(agent, "a.b")) for _ in range(2))
    revisions = [one["policy_revision"] for one in recorded(newcomer, first, second, third)]
    assert revisions[0] < revisions[1] == revisions[2]


def test_check_that_writes_has_its_record_before_the_response(gateway: LiveGateway, newcomer: Owner) -> None:
    agent = newcomer.agent()
    permission = newcomer.permit(agent, "pay", requires_approval=True)
    revision = recorded(newcomer, decision_id(newcomer.check(agent, "x")))[0]["policy_revision"]
    held = newcomer.check(agent, "pay", {"n": 1}, call_id="c")
    approval = held.json()["approval_id"]
    query = (
        "SELECT outcome, reason_code, approval_id, permission_id, policy_revision FROM decisions WHERE id = ?"
    )
    waiting = ("approval_required", "approval_required", approval, permission, revision)
    assert rows(gateway, query, decision_id(held)) == [waiting]
    again = newcomer.check(agent, "pay", {"n": 1}, call_id="c")
    assert rows(gateway, query, decision_id(again)) == [waiting]
    assert newcomer.http.post(f"/api/approvals/{approval}/approve").status_code == 200
    used = newcomer.check(agent, "pay", {"n": 1}, call_id="c")
    assert rows(gateway, query, decision_id(used)) == [
        ("allowed", "approved", approval, permission, revision)
    ]
    consumed = "SELECT decision_id FROM approvals WHERE id = ?"
    assert rows(gateway, consumed, approval) == [(decision_id(used),)]
    late = newcomer.check(agent, "pay", {"n": 1}, call_id="c", approval_id=approval)
    assert rows(gateway, query, decision_id(late)) == [
        ("denied", "call_already_allowed", approval, permission, revision)
    ]
    foreign = newcomer.check(agent, "pay", {"n": 1}, approval_id=UNKNOWN)
    assert rows(gateway, query, decision_id(foreign)) == [
        ("denied", "approval_not_found", None, permission, revision)
    ]
    assert count(gateway, newcomer) == 6


def test_use_of_a_temporary_approval_names_the_request_that_records_it(
    gateway: LiveGateway, newcomer: Owner
) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay", requires_approval=True)
    held = newcomer.check(agent, "pay", {"n": 1}).json()["approval_id"]
    body = {"grant": {"uses": 3, "seconds": 600}}
    answer = newcomer.http.post(f"/api/approvals/{held}/approve", json=body)
    assert answer.status_code == 200, answer.text
    first, second = (newcomer.check(agent, "pay", {"n": 1}) for _ in range(2))
    found = recorded(newcomer, decision_id(first), decision_id(second))
    assert [one["reason_code"] for one in found] == ["approved", "temporary_approval"]
    query = "SELECT status, decision_id FROM approvals WHERE id = ?"
    assert rows(gateway, query, found[1]["approval_id"]) == [("consumed", decision_id(second))]
    assert count(gateway, newcomer) == 3


def test_retry_of_a_consuming_check_leaves_no_second_record(gateway: LiveGateway, newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay", requires_approval=True)
    held = newcomer.check(agent, "pay", {"n": 1}).json()["approval_id"]
    newcomer.http.post(f"/api/approvals/{held}/approve")
    body = {"agent_id": agent, "action": "pay", "context": {"n": 1}}
    headers = {"X-API-Key": newcomer.key, "Idempotency-Key": "once"}
    first, second = (newcomer.http.post("/sdk/check", json=body, headers=headers) for _ in range(2))
    assert decision_id(first) == decision_id(second)
    recorded(newcomer, decision_id(first))
    assert count(gateway, newcomer) == 2


def test_rule_that_decides_is_in_the_record(newcomer: Owner) -> None:
    agent = newcomer.agent()
    rules = {}
    for effect in ("forbid", "require_approval", "allow"):
        body = {"name": effect, "effect": effect, "actions": [f"{effect}.*"]}
        answer = newcomer.http.post("/api/rules", json=body)
        assert answer.status_code == 201, answer.text
        rules[effect] = answer.json()["id"]
    answers = [newcomer.check(agent, f"{effect}.call") for effect in rules]
    found = recorded(newcomer, *map(decision_id, answers))
    assert [(one["outcome"], one["rule_id"]) for one in found] == [
        ("denied", rules["forbid"]),
        ("approval_required", rules["require_approval"]),
        ("allowed", rules["allow"]),
    ]
    filtered = newcomer.http.get("/api/decisions", params={"rule_id": rules["forbid"]}).json()
    assert [one["id"] for one in filtered] == [decision_id(answers[0])]


def test_check_with_a_budget_leaves_one_record_for_all_its_retries(
    gateway: LiveGateway, newcomer: Owner
) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, ACTION)
    create(newcomer, measure="sum(args.amount)")
    body = {"agent_id": agent, "action": ACTION, "context": {"amount": 40}}
    headers = {"X-API-Key": newcomer.key, "Idempotency-Key": "once"}
    ids = {decision_id(newcomer.http.post("/sdk/check", json=body, headers=headers)) for _ in range(3)}
    over = decision_id(newcomer.check(agent, ACTION, {"amount": 61}))
    query = "SELECT id, outcome, reason_code FROM decisions WHERE organization_id = ? ORDER BY id"
    assert rows(gateway, query, newcomer.user["organization_id"]) == [
        (*ids, "allowed", "allowed"),
        (over, "denied", "budget_exceeded"),
    ]


def test_dry_runs_and_errors_leave_no_record(gateway: LiveGateway, newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "free")
    newcomer.permit(agent, "pay", requires_approval=True)
    ids = [decision_id(newcomer.check(agent, action, dry_run=True)) for action in ("free", "pay", "none")]
    key = {"X-API-Key": newcomer.key}
    body = {"agent_id": agent, "action": "free"}
    failed = [
        newcomer.http.post("/sdk/check", json={}, headers=key),
        newcomer.http.post("/sdk/check", json=body, headers={"X-API-Key": "ak_wrong"}),
        newcomer.http.post("/sdk/check", content=b"{", headers=key),
    ]
    assert [one.status_code for one in failed] == [400, 401, 400]
    last = decision_id(newcomer.check(agent, "free"))
    recorded(newcomer, last)
    assert count(gateway, newcomer) == 1
    assert {newcomer.http.get(f"/api/decisions/{one}").status_code for one in ids} == {404}


@pytest.mark.sqlite_only("a limit of the rate is the same on both")
def test_rate_limited_check_leaves_no_record(gateway: LiveGateway, newcomer: Owner) -> None:
    agent = newcomer.agent()
    limited = "UPDATE organizations SET requests_per_minute = 2 WHERE id = ?"
    execute(gateway, limited, newcomer.user["organization_id"])
    answers = [newcomer.check(agent, "a.b") for _ in range(6)]
    decided = [decision_id(one) for one in answers if one.status_code == httpx.codes.OK]
    assert {one.status_code for one in answers} == {200, 429}
    recorded(newcomer, *decided)
    assert count(gateway, newcomer) == len(decided)


def test_long_unknown_agent_id_is_shortened(newcomer: Owner) -> None:
    answer = newcomer.check("näme\n" * 40, "a.b")
    [record] = recorded(newcomer, decision_id(answer))
    assert record["requested_agent"] == ("näme\n" * 40)[:64]


def test_large_context_has_the_digest_of_its_approval_request(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay", requires_approval=True)
    newcomer.permit(agent, "free")
    context = {"text": "x" * 40_000, "n": 1e3}
    held, free = newcomer.check(agent, "pay", context), newcomer.check(agent, "free", context)
    digest = newcomer.http.get(f"/api/approvals/{held.json()['approval_id']}").json()["digest"]
    found = recorded(newcomer, decision_id(held), decision_id(free))
    assert {one["context_digest"] for one in found} == {digest}


def test_record_stays_after_its_agent_is_deleted(newcomer: Owner) -> None:
    agent = newcomer.agent("gone")
    first = decision_id(newcomer.check(agent, "a.b"))
    recorded(newcomer, first)
    assert newcomer.http.delete(f"/api/agents/{agent}").status_code == 204
    second = decision_id(newcomer.check(agent, "a.b"))
    found = recorded(newcomer, first, second)
    assert [(one["agent_id"], one["requested_agent"]) for one in found] == [(agent, None), (None, agent)]
    assert found[0]["agent_name"] == "gone"
