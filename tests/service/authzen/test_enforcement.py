"""Access evaluations enforce the policy as `POST /sdk/check` does, unless the key is advisory or they are dry runs."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.authzen import EVALUATION, EVALUATIONS, SUBJECTS, Pep, agent_key
from support.budgets import amounts, create, usage
from support.decisions import recorded
from support.gateway import LiveGateway, Owner
from support.tables import rows

TOOL = {"type": "tool", "id": "stripe.refund"}


@pytest.fixture
def refunds(own: Pep) -> Pep:
    own.owner.permit(own.agent, "stripe.refund")
    return own


@pytest.fixture
def held(own: Pep) -> Pep:
    own.owner.permit(own.agent, "stripe.refund", requires_approval=True)
    return own


@pytest.fixture
def advisory(own: Pep) -> Iterator[Pep]:
    with Pep(own.owner, own.agent, advisory=True) as client:
        yield client


def approve(owner: Owner, approval: str) -> None:
    answer = owner.http.post(f"/api/approvals/{approval}/approve")
    assert answer.status_code == 200, answer.text


def approvals(owner: Owner) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get("/api/approvals").json()
    return found


def decisions(gateway: LiveGateway, owner: Owner) -> int:
    query = "SELECT count(*) FROM decisions WHERE organization_id = ?"
    number: int = rows(gateway, query, owner.user["organization_id"])[0][0]
    return number


def test_evaluation_is_recorded_as_a_check_is(refunds: Pep) -> None:
    body = {
        "subject": {"type": "user", "id": "ann", "properties": {"act": {"sub": refunds.agent}}},
        "action": {"name": "call", "properties": {"amount": 12.5}},
        "resource": TOOL,
        "context": {"time": "2026-01-31T12:00:00Z", "toolgate": {"run_id": "r", "call_id": "c"}},
    }
    answer = refunds.post(EVALUATION, body)
    context = {
        "subject": {"type": "user", "id": "ann", "properties": {"act": {"sub": refunds.agent}}},
        "action": {"name": "call"},
        "resource": TOOL,
        "amount": 12.5,
    }
    checked = refunds.owner.check(refunds.agent, "stripe.refund", context, run_id="r", call_id="c")
    own, sdk = (one.headers["X-Decision-ID"] for one in (answer, checked))
    first, second = recorded(refunds.owner, own), recorded(refunds.owner, sdk)
    different = {"id", "created_at", "key_id"}
    assert [{k: v for k, v in one.items() if k not in different} for one in first] == [
        {k: v for k, v in one.items() if k not in different} for one in second
    ]


def test_denied_evaluation_names_its_record(own: Pep) -> None:
    decision = own.call("stripe.refund")
    assert decision["decision"] is False
    context = decision["context"]
    assert (context["reason"], context["message"]) == (
        "no_permission",
        "Agent has no permission for action 'stripe.refund'",
    )
    [record] = recorded(own.owner, context["evaluation_id"])
    assert (record["outcome"], record["reason_code"]) == ("denied", "no_permission")


def test_denial_by_a_rule_names_the_rule(refunds: Pep) -> None:
    rule = {"name": "No", "effect": "forbid", "actions": ["stripe.*"]}
    made = refunds.owner.http.post("/api/rules", json=rule).json()["id"]
    context = refunds.call("stripe.refund")["context"]
    assert (context["reason"], context["rule_id"]) == ("forbidden_by_rule", made)


def test_evaluation_reserves_budgets(refunds: Pep) -> None:
    budget = create(refunds.owner, measure="sum(args.amount)", limit=100, actions=["stripe.refund"])
    permitted = refunds.call("stripe.refund", amount=60.5)
    assert permitted["decision"] is True
    assert permitted["context"]["budget_left"] == "39.5"
    denied = refunds.call("stripe.refund", amount=40)
    assert denied["context"]["reason"] == "budget_exceeded"
    assert amounts(refunds.owner, budget) == (0, 60.5, 39.5)
    refunds.owner.log(
        refunds.agent, "stripe.refund", "failed", decision_id=permitted["context"]["evaluation_id"]
    )
    assert amounts(refunds.owner, budget)[1] == 0


def test_held_evaluation_is_a_denial_with_the_id_of_the_approval(held: Pep) -> None:
    decision = held.call("stripe.refund", amount=5)
    [approval] = approvals(held.owner)
    assert decision["decision"] is False
    assert decision["context"]["reason"] == "approval_required"
    assert decision["context"]["approval_id"] == approval["id"]
    assert approval["context"] == {
        "amount": 5,
        "subject": {"type": "agent", "id": held.agent},
        "action": {"name": "call"},
        "resource": TOOL,
    }


def test_repeated_held_evaluation_belongs_to_the_same_approval(held: Pep) -> None:
    first, second = (held.call("stripe.refund")["context"]["approval_id"] for _ in range(2))
    assert first == second


def test_evaluation_consumes_an_approval_once(held: Pep) -> None:
    approval = held.call("stripe.refund", amount=5)["context"]["approval_id"]
    approve(held.owner, approval)
    permitted = held.call("stripe.refund", amount=5)
    assert permitted["decision"] is True
    assert permitted["context"]["approval_id"] == approval
    again = held.call("stripe.refund", amount=5)
    assert again["decision"] is False
    assert again["context"]["approval_id"] != approval


@pytest.mark.parametrize(
    "change",
    [
        {"action": {"name": "call", "properties": {"amount": 6}}},
        {"action": {"name": "cancel", "properties": {"amount": 5}}},
        {"resource": TOOL | {"properties": {"owner": "mallory"}}},
        {"subject": {"type": "user", "id": "mallory"}},
        {"context": {"ip": "192.0.2.1"}},
    ],
)
def test_approval_is_bound_to_every_entity(held: Pep, change: dict[str, object]) -> None:
    body: dict[str, object] = {
        "subject": {"type": "user", "id": "ann"},
        "action": {"name": "call", "properties": {"amount": 5}},
        "resource": TOOL,
    }
    approve(held.owner, held.evaluate(body)["context"]["approval_id"])
    assert held.evaluate(body | change)["decision"] is False
    assert held.evaluate(body)["decision"] is True


def test_approval_is_not_bound_to_the_time(held: Pep) -> None:
    first = held.call("stripe.refund", {"time": "2026-01-31T12:00:00Z"})
    approve(held.owner, first["context"]["approval_id"])
    assert held.call("stripe.refund", {"time": "2026-01-31T12:00:01Z"})["decision"] is True


def test_approval_of_an_sdk_check_covers_the_equal_evaluation(held: Pep) -> None:
    context = {
        "amount": 5,
        "subject": {"type": "agent", "id": held.agent},
        "action": {"name": "call"},
        "resource": TOOL,
    }
    approve(held.owner, held.owner.check(held.agent, "stripe.refund", context).json()["approval_id"])
    assert held.call("stripe.refund", amount=5)["decision"] is True


def test_fields_of_a_check_are_members_of_the_context(held: Pep) -> None:
    held.call("stripe.refund", {"toolgate": {"call_id": "c", "run_id": "r", "reason": " late "}})
    [approval] = approvals(held.owner)
    assert (approval["call_id"], approval["run_id"], approval["reason"]) == ("c", "r", "late")
    assert "context" not in approval["context"]


def test_closed_approval_id_denies_the_evaluation(held: Pep) -> None:
    approval = held.call("stripe.refund")["context"]["approval_id"]
    held.owner.http.post(f"/api/approvals/{approval}/deny")
    denied = held.call("stripe.refund", {"toolgate": {"approval_id": approval}})
    assert denied["context"]["reason"] == "recently_rejected"


def test_retry_with_the_same_idempotency_key_consumes_nothing_again(held: Pep) -> None:
    body = {"subject": {"type": "user", "id": "ann"}, "action": {"name": "call"}, "resource": TOOL}
    approve(held.owner, held.evaluate(body)["context"]["approval_id"])
    headers = {"Idempotency-Key": "k"}
    first, second = (held.evaluate(body, **headers) for _ in range(2))
    assert first["decision"] is second["decision"] is True
    assert first["context"]["evaluation_id"] == second["context"]["evaluation_id"]
    assert held.evaluate(body)["decision"] is False


def test_retry_of_several_evaluations_reserves_nothing_again(refunds: Pep) -> None:
    budget = create(refunds.owner, measure="sum(args.amount)", limit=100, actions=["stripe.refund"])
    body = {
        "subject": {"type": "user", "id": "ann"},
        "resource": TOOL,
        "evaluations": [
            {"action": {"name": "call", "properties": {"amount": amount}}} for amount in (10, 10, 20)
        ],
    }
    headers = {"Idempotency-Key": "k" * 255}
    first, second = (refunds.post(EVALUATIONS, body, **headers).json() for _ in range(2))
    assert [one["decision"] for one in first["evaluations"]] == [True] * 3
    assert [one["context"]["evaluation_id"] for one in first["evaluations"]] == [
        one["context"]["evaluation_id"] for one in second["evaluations"]
    ]
    assert amounts(refunds.owner, budget) == (0, 40, 60)


def test_advisory_evaluation_changes_nothing(gateway: LiveGateway, held: Pep, advisory: Pep) -> None:
    held.owner.permit(held.agent, "mail.send")
    budget = create(held.owner, measure="count", limit=100, actions=["mail.send"])
    before = decisions(gateway, held.owner)
    assert advisory.call("mail.send") == {"decision": True}
    waiting = advisory.call("stripe.refund")
    assert waiting["decision"] is False
    assert waiting["context"].keys() == {"reason", "message"}
    assert waiting["context"]["reason"] == "approval_required"
    assert advisory.call("other")["context"]["reason"] == "no_permission"
    assert approvals(held.owner) == []
    assert usage(held.owner, budget) == []
    # A check that requires an approval writes its record, and those queued before it, by the time it is read.
    recorded(held.owner, held.call("stripe.refund")["context"]["evaluation_id"])
    assert decisions(gateway, held.owner) == before + 1


def test_advisory_evaluation_does_not_consume_an_approval(held: Pep, advisory: Pep) -> None:
    approve(held.owner, held.call("stripe.refund")["context"]["approval_id"])
    for _ in range(2):
        assert advisory.call("stripe.refund") == {"decision": True}
    assert held.call("stripe.refund")["decision"] is True
    assert advisory.call("stripe.refund")["decision"] is False


def test_advisory_evaluations_change_nothing(refunds: Pep) -> None:
    budget = create(refunds.owner, measure="count", limit=1, actions=["stripe.refund"])
    with Pep(refunds.owner, refunds.agent, advisory=True) as advisory:
        entities = {"subject": {"type": "user", "id": "a"}, "action": {"name": "call"}, "resource": TOOL}
        assert advisory.evaluate_all(**entities, evaluations=[{}] * 3) == [{"decision": True}] * 3
    assert usage(refunds.owner, budget) == []


def test_dry_run_changes_nothing(held: Pep) -> None:
    decision = held.call("stripe.refund", {"toolgate": {"dry_run": True}})
    assert decision["context"].keys() == {"reason", "message"}
    assert approvals(held.owner) == []


def test_search_changes_nothing(held: Pep) -> None:
    body = {"subject": {"type": "agent"}, "action": {"name": "call"}, "resource": TOOL}
    assert held.search(SUBJECTS, body) == []
    assert approvals(held.owner) == []


def test_advisory_key_cannot_make_checks_that_are_enforced(refunds: Pep) -> None:
    key = agent_key(refunds.owner, refunds.agent, advisory=True)
    check = {"agent_id": refunds.agent, "action": "stripe.refund"}
    headers = {"X-API-Key": key}
    refused = refunds.owner.http.post("/sdk/check", json=check, headers=headers)
    assert refused.status_code == 403
    assert "advisory" in refused.json()["detail"]
    dry = refunds.owner.http.post("/sdk/check", json=check | {"dry_run": True}, headers=headers)
    assert dry.json()["allowed"] is True


@pytest.mark.parametrize("path", ["/sdk/log", "/sdk/logs", "/sdk/approvals/{approval}/cancel"])
def test_advisory_key_cannot_change_anything(held: Pep, path: str) -> None:
    approval = held.call("stripe.refund")["context"]["approval_id"]
    entry = {"agent_id": held.agent, "action": "stripe.refund", "status": "success"}
    body = {"entries": [entry]} if path == "/sdk/logs" else entry
    headers = {"X-API-Key": agent_key(held.owner, held.agent, advisory=True)}
    answer = held.owner.http.post(path.format(approval=approval), json=body, headers=headers)
    assert answer.status_code == 403
    assert approvals(held.owner)[0]["status"] == "pending"


def test_advisory_key_can_read_permissions_and_approvals(held: Pep, advisory: Pep) -> None:
    approval = held.call("stripe.refund")["context"]["approval_id"]
    assert advisory.http.get(f"/sdk/approvals/{approval}").status_code == 200
    assert advisory.http.get("/sdk/permissions", params={"agent_id": held.agent}).status_code == 200


@pytest.fixture
def other(own: Pep) -> Iterator[Pep]:
    """Client with the API key of another agent."""
    agent = own.owner.agent("other")
    own.owner.permit(agent, "stripe.refund")
    with Pep(own.owner, agent) as client:
        yield client


CALL = {
    "subject": {"type": "user", "id": "ann"},
    "action": {"name": "call", "properties": {"amount": 5}},
    "resource": TOOL,
}


def test_idempotency_key_of_another_agent_consumes_no_approval(held: Pep) -> None:
    """The body does not contain the agent, which follows from the API key."""
    agent = held.owner.agent("other")
    held.owner.permit(agent, "stripe.refund", requires_approval=True)
    approve(held.owner, held.evaluate(CALL)["context"]["approval_id"])
    key = {"Idempotency-Key": "order-42"}
    assert held.evaluate(CALL, **key)["decision"] is True
    assert held.evaluate(CALL, **key)["decision"] is True
    with Pep(held.owner, agent) as other:
        assert other.evaluate(CALL, **key)["decision"] is False


def test_idempotency_key_of_another_agent_reserves_its_own_amount(refunds: Pep, other: Pep) -> None:
    budget = create(refunds.owner, measure="sum(args.amount)", limit=8, actions=["stripe.refund"])
    key = {"Idempotency-Key": "order-43"}
    assert refunds.evaluate(CALL, **key)["decision"] is True
    assert other.evaluate(CALL, **key)["decision"] is False
    assert amounts(refunds.owner, budget) == (0, 5, 3)
