"""Re-evaluations with the approval of an access request."""

from datetime import timedelta
from typing import Any

import pytest
from support.arap import Denied
from support.authzen import Pep, agent_key
from support.budgets import create
from support.crowd import together
from support.gateway import SECRET, LiveGateway, Owner
from support.requester import REFUND, Requester
from support.tables import execute

from toolgate_service.access_requests.signing import Signer
from toolgate_service.core.clock import utcnow
from toolgate_service.core.crypto import Vault

PAST = "2026-01-01T00:00:00.000000Z"


def denied(decision: dict[str, Any]) -> tuple[str, str, bool]:
    """Return the reason, the next action, and whether an access can be requested."""
    assert decision["decision"] is False
    context = decision["context"]
    return context["reason"], context["next_action"], "access_request" in context


def test_approved_access_is_permitted_with_its_approval(pep: Requester) -> None:
    approval = pep.approved()
    decision = pep.evaluate(REFUND, approval)
    assert decision["decision"] is True
    named = {name: approval[name] for name in ("id", "approved_until")}
    assert decision["context"]["approval"] == named


def test_approval_is_not_an_argument(pep: Requester) -> None:
    changed = REFUND["context"] | {"time": "2026-11-28T12:30:00Z"}
    assert pep.evaluate(REFUND | {"context": changed}, pep.approved())["decision"] is True


def test_second_reevaluation_needs_another_request(pep: Requester) -> None:
    approval = pep.approved()
    assert pep.evaluate(REFUND, approval)["decision"] is True
    again = pep.evaluate(REFUND, approval)
    assert denied(again) == ("approval_expired", "request", True)
    body = pep.request(REFUND, again)
    assert body["task"]["status"] == "pending"
    pep.decide()
    assert pep.evaluate(REFUND, pep.complete(body))["decision"] is True


def test_concurrent_reevaluations_are_permitted_once(pep: Requester) -> None:
    approval = pep.approved()
    found = together(*[lambda: pep.evaluate(REFUND, approval)["decision"]] * 8)
    assert sorted(found) == [False] * 7 + [True]


def test_retry_with_an_idempotency_key_is_permitted_again(pep: Requester) -> None:
    approval = pep.approved()
    access = REFUND | {"context": REFUND["context"] | {"toolgate": {"reason": "late"}}}
    headers = {"Idempotency-Key": "k"}
    first, second = (pep.evaluate(access, approval, **headers) for _ in range(2))
    assert first["decision"] is second["decision"] is True
    assert first["context"]["evaluation_id"] == second["context"]["evaluation_id"]
    assert first["context"]["approval"] == second["context"]["approval"]


@pytest.mark.parametrize(
    "change",
    [
        {"subject": {"type": "user", "id": "mallory"}},
        {"action": {"name": "call", "properties": {"amount": 400}}},
        {"resource": REFUND["resource"] | {"properties": {"owner": "x"}}},
        {"context": {"ticket": "t-2"}},
        {"context": {"ticket": "t-1", "arguments": {"amount": 400}}},
    ],
)
def test_approval_must_not_permit_another_access(pep: Requester, change: dict[str, Any]) -> None:
    approval = pep.approved()
    assert denied(pep.evaluate(REFUND | change, approval)) == ("out_of_scope", "request", True)
    assert pep.evaluate(REFUND, approval)["decision"] is True


def test_approval_must_not_override_a_missing_permission(pep: Requester) -> None:
    approval = pep.approved()
    other = REFUND | {"resource": {"type": "tool", "id": "mail.send"}}
    assert denied(pep.evaluate(other, approval)) == ("policy_denied", "none", False)


def test_approval_must_not_override_current_policy(pep: Requester) -> None:
    approval = pep.approved()
    rule = {"name": "No", "effect": "forbid", "actions": ["stripe.*"]}
    made = pep.owner.http.post("/api/rules", json=rule).json()["id"]
    decision = pep.evaluate(REFUND, approval)
    assert denied(decision) == ("policy_denied", "none", False)
    assert decision["context"]["rule_id"] == made
    pep.owner.http.delete(f"/api/rules/{made}")
    assert pep.evaluate(REFUND, approval)["decision"] is True


def test_approval_must_not_override_a_budget(pep: Requester) -> None:
    create(pep.owner, measure="sum(args.amount)", limit=10, actions=["stripe.refund"])
    approval = pep.approved()
    assert denied(pep.evaluate(REFUND, approval)) == ("policy_denied", "none", False)


def test_expired_approval_must_not_permit(gateway: LiveGateway, pep: Requester) -> None:
    approval = pep.approved()
    execute(gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", PAST, approval["id"])
    assert denied(pep.evaluate(REFUND, approval)) == ("approval_expired", "request", True)


def test_cancelled_approval_must_not_permit(pep: Requester) -> None:
    approval = pep.approved()
    pep.http.post(f"{pep.owner.url}/sdk/approvals/{approval['id']}/cancel")
    assert denied(pep.evaluate(REFUND, approval)) == ("approval_expired", "request", True)


def test_approval_under_stricter_terms_must_not_permit(pep: Requester) -> None:
    approval = pep.approved()
    [permission] = pep.owner.http.get(f"/api/agents/{pep.agent}/permissions").json()
    change = {"required_approvals": 2}
    assert pep.owner.http.put(f"/api/permissions/{permission['id']}", json=change).status_code == 200
    assert denied(pep.evaluate(REFUND, approval)) == ("approval_expired", "request", True)


def test_pending_approval_is_to_be_retried(pep: Requester) -> None:
    pending = pep.evaluate(REFUND)["context"]["approval_id"]
    decision = pep.evaluate(REFUND, {"id": pending, "approved_until": "2030-01-01T00:00:00Z"})
    assert denied(decision) == ("grant_pending", "retry", False)
    assert decision["context"]["retry_after"] == 5


@pytest.mark.parametrize(
    "approval",
    ["x", 1, [], {}, {"id": 1}, {"id": "x"}, {"id": "019c6d1e-1c11-7d52-8a40-5b2a90d1e7f4"}],
)
def test_unknown_approval_must_not_permit(pep: Requester, approval: object) -> None:
    assert denied(pep.evaluate(REFUND, approval)) == ("approval_unverifiable", "none", False)
    assert pep.approvals() == []


def test_approval_of_another_agent_must_not_permit(pep: Requester) -> None:
    approval = pep.approved()
    other = pep.owner.agent("other")
    pep.owner.permit(other, "stripe.refund", requires_approval=True)
    pep.http.headers["Authorization"] = f"Bearer {agent_key(pep.owner, other)}"
    assert denied(pep.evaluate(REFUND, approval)) == ("approval_unverifiable", "none", False)


def test_approval_of_another_organization_must_not_permit(pep: Requester, rival: Owner) -> None:
    approval = pep.approved()
    agent = rival.agent()
    rival.permit(agent, "stripe.refund", requires_approval=True)
    pep.http.headers["Authorization"] = f"Bearer {agent_key(rival, agent)}"
    assert denied(pep.evaluate(REFUND, approval)) == ("approval_unverifiable", "none", False)


def state(pep: Requester, approval_id: str, minutes: int = 10, base: str | None = None) -> str:
    signer = Signer(Vault(SECRET.encode()).access_request_keys, base or pep.metadata["policy_decision_point"])
    moment = utcnow()
    return signer.sign(
        {"approval_id": approval_id}, issued=moment, expires=moment + timedelta(minutes=minutes)
    )


def test_signed_state_of_the_approval_is_accepted(pep: Requester) -> None:
    approval = pep.approved()
    assert pep.evaluate(REFUND, approval | {"state": state(pep, approval["id"])})["decision"] is True


def test_state_that_cannot_be_verified_must_be_rejected(pep: Requester) -> None:
    approval = pep.approved()
    another = "019c6d1e-1c11-7d52-8a40-5b2a90d1e7f4"
    states = (
        "x.y.z",
        {"any": "value"},
        state(pep, another),
        state(pep, approval["id"], minutes=-1),
        state(pep, approval["id"], base="https://another.example.com"),
    )
    for one in states:
        decision = pep.evaluate(REFUND, approval | {"state": one})
        assert denied(decision) == ("approval_unverifiable", "none", False)
    assert pep.evaluate(REFUND, approval)["decision"] is True


def test_approval_of_a_call_that_needs_none_is_not_consumed(pep: Requester) -> None:
    approval = pep.approved()
    [permission] = pep.owner.http.get(f"/api/agents/{pep.agent}/permissions").json()
    pep.owner.http.put(f"/api/permissions/{permission['id']}", json={"requires_approval": False})
    assert pep.evaluate(REFUND, approval)["decision"] is True
    assert pep.approvals()[0]["status"] == "approved"


def test_dry_run_does_not_consume_the_approval(pep: Requester) -> None:
    approval = pep.approved()
    with Pep(pep.owner, pep.agent, advisory=True) as advisory:
        body = REFUND | {"context": REFUND["context"] | {"approval": approval}}
        for _ in range(2):
            assert advisory.evaluate(body)["decision"] is True
        assert pep.evaluate(REFUND, approval)["decision"] is True
        assert denied(advisory.evaluate(body)) == ("approval_expired", "none", False)


def test_reevaluation_among_several_evaluations(pep: Requester) -> None:
    approval = pep.approved()
    with Pep(pep.owner, pep.agent) as several:
        context = REFUND["context"] | {"approval": approval}
        first, second = several.evaluate_all(**(REFUND | {"context": context}), evaluations=[{}, {}])
    assert first["context"]["approval"]["id"] == approval["id"]
    assert denied(second) == ("approval_expired", "request", True)


def test_denied_task_raises_in_the_client(pep: Requester) -> None:
    body = pep.request(REFUND)
    pep.decide("deny")
    with pytest.raises(Denied):
        pep.complete(body)
