"""Budgets that require an approval at their limit, and budgets of calls that need an approval anyway."""

import pytest
from support.budgets import (
    ACTION,
    ALLOWED,
    APPROVED,
    EXCEEDED,
    REQUIRED,
    amounts,
    create,
    outcome,
    reservations,
    spend,
)
from support.gateway import Owner


@pytest.fixture
def budget(acme: Owner) -> str:
    """A budget of 100 that asks a person at its limit."""
    return create(acme, measure="sum(args.amount)", at_limit="require_approval")


def approve(owner: Owner, approval: str, **body: object) -> None:
    answer = owner.http.post(f"/api/approvals/{approval}/approve", json=body)
    assert answer.status_code == 200, answer.text


def test_approved_call_may_exceed_the_limit_once(acme: Owner, bot: str, budget: str) -> None:
    assert outcome(spend(acme, bot, 90)) == ALLOWED
    held = spend(acme, bot, 20, run_id="r")
    assert outcome(held) == REQUIRED
    approval = held.json()["approval_id"]
    assert held.json()["reason"] == (
        "Budget 'Refunds' does not cover the amount 20: 10 of 100 is left in this month"
    )
    assert acme.http.get(f"/api/approvals/{approval}").json()["budget_id"] == budget
    assert amounts(acme, budget) == (0, 90, 10)
    approve(acme, approval)
    assert amounts(acme, budget) == (0, 90, 10)
    used = spend(acme, bot, 20, run_id="r")
    assert outcome(used) == APPROVED
    assert used.headers["x-budget-left"] == "-10"
    assert amounts(acme, budget) == (0, 110, -10)
    [over] = [one for one in reservations(acme) if one["over_limit"]]
    assert (over["approval_id"], over["decision_id"]) == (approval, used.headers["x-decision-id"])
    assert outcome(spend(acme, bot, 20, run_id="r")) == REQUIRED
    acme.log(bot, ACTION, decision_id=used.headers["x-decision-id"])
    assert amounts(acme, budget) == (20, 90, -10)


def test_pending_request_reserves_nothing_and_small_calls_still_run(
    acme: Owner, bot: str, budget: str
) -> None:
    assert outcome(spend(acme, bot, 101)) == REQUIRED
    assert outcome(spend(acme, bot, 101)) == REQUIRED
    assert amounts(acme, budget) == (0, 0, 100)
    assert outcome(spend(acme, bot, 100)) == ALLOWED


def test_approval_is_not_used_if_the_budget_covers_the_call_again(acme: Owner, bot: str, budget: str) -> None:
    held = spend(acme, bot, 101)
    approval = held.json()["approval_id"]
    approve(acme, approval)
    assert acme.http.put(f"/api/budgets/{budget}", json={"limit": 200}).status_code == 200
    assert outcome(spend(acme, bot, 101, approval_id=approval)) == ALLOWED
    assert acme.http.get(f"/api/approvals/{approval}").json()["status"] == "approved"
    assert [one["over_limit"] for one in reservations(acme)] == [False]


def test_retry_of_an_approved_call_over_the_limit_reserves_once(acme: Owner, bot: str, budget: str) -> None:
    approve(acme, spend(acme, bot, 101).json()["approval_id"])
    body = {"agent_id": bot, "action": ACTION, "context": {"amount": 101}}
    headers = {"X-API-Key": acme.key, "Idempotency-Key": "once"}
    answers = [acme.http.post("/sdk/check", json=body, headers=headers) for _ in range(2)]
    assert {outcome(answer) for answer in answers} == {APPROVED}
    for name in ("x-decision-id", "x-budget-left"):
        assert len({answer.headers[name] for answer in answers}) == 1
    assert amounts(acme, budget) == (0, 101, -1)


def test_rejected_call_is_denied(acme: Owner, bot: str, budget: str) -> None:
    held = spend(acme, bot, 101, call_id="c")
    assert acme.http.post(f"/api/approvals/{held.json()['approval_id']}/deny").status_code == 200
    assert outcome(spend(acme, bot, 101, call_id="c")) == (False, "recently_rejected")
    assert reservations(acme) == []
    assert budget


def test_budget_that_denies_keeps_the_approval_for_later(acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, ACTION, requires_approval=True)
    budget = create(acme, measure="sum(args.amount)")
    approval = spend(acme, agent, 101).json()["approval_id"]
    approve(acme, approval)
    assert outcome(spend(acme, agent, 101)) == EXCEEDED
    assert acme.http.get(f"/api/approvals/{approval}").json()["status"] == "approved"
    assert acme.http.put(f"/api/budgets/{budget}", json={"limit": 101}).status_code == 200
    assert outcome(spend(acme, agent, 101)) == APPROVED
    [one] = reservations(acme)
    assert (one["over_limit"], one["approval_id"]) == (False, approval)


def test_temporary_approval_does_not_cover_calls_over_the_limit(acme: Owner, budget: str) -> None:
    agent = acme.agent()
    acme.permit(agent, ACTION, requires_approval=True)
    held = spend(acme, agent, 60, run_id="1")
    approve(acme, held.json()["approval_id"], grant={"uses": 5, "seconds": 3600})
    assert outcome(spend(acme, agent, 60, run_id="1"))[0]
    over = spend(acme, agent, 60, run_id="2")
    assert outcome(over) == REQUIRED
    assert over.json()["reason"].startswith(
        "Budget 'Refunds' does not cover the amount 60: 40 of 100 is left"
    )
    [grant] = acme.http.get("/api/grants").json()
    uses = grant["uses_left"]
    approve(acme, over.json()["approval_id"])
    assert outcome(spend(acme, agent, 60, run_id="2")) == APPROVED
    [grant] = acme.http.get("/api/grants").json()
    assert grant["uses_left"] == uses
    assert amounts(acme, budget) == (0, 120, -20)


def test_temporary_approval_reserves_within_the_limit(acme: Owner, budget: str) -> None:
    agent = acme.agent()
    acme.permit(agent, ACTION, requires_approval=True)
    approve(acme, spend(acme, agent, 10).json()["approval_id"], grant={"uses": 5, "seconds": 3600})
    answers = [spend(acme, agent, 10) for _ in range(3)]
    assert all(answer.json()["allowed"] for answer in answers)
    assert amounts(acme, budget) == (0, 30, 70)


@pytest.mark.parametrize("at_limit", ["deny", "require_approval"])
def test_call_of_a_rule_without_permission_follows_the_budget(acme: Owner, at_limit: str) -> None:
    agent = acme.agent()
    create(acme, limit=1, at_limit=at_limit)
    rule = {"name": "Refunds are fine", "effect": "allow", "actions": [ACTION]}
    assert acme.http.post("/api/rules", json=rule).status_code == 201
    assert outcome(acme.check(agent, ACTION)) == ALLOWED
    held = acme.check(agent, ACTION)
    if at_limit == "deny":
        assert outcome(held) == EXCEEDED
        return
    assert outcome(held) == REQUIRED
    approve(acme, held.json()["approval_id"])
    assert outcome(acme.check(agent, ACTION)) == APPROVED


def test_temporary_approval_covers_no_pending_call_over_the_limit(acme: Owner, bot: str, budget: str) -> None:
    context = {"amount": 1000}
    held = [acme.check(bot, ACTION, context | {"order": n}).json()["approval_id"] for n in range(3)]
    grant = {"max_uses": 10, "duration_seconds": 600, "ignored_fields": ["order"]}
    approve(acme, held[0], grant=grant)
    assert outcome(acme.check(bot, ACTION, context | {"order": 0})) == APPROVED
    for order in (1, 2):
        assert outcome(acme.check(bot, ACTION, context | {"order": order})) == REQUIRED
    assert amounts(acme, budget) == (0, 1000, -900)


def test_request_that_a_temporary_approval_approved_needs_the_budget_when_it_runs(
    acme: Owner, bot: str, budget: str
) -> None:
    action = "held.refund"
    acme.permit(bot, action, requires_approval=True)
    change = {"actions": [ACTION, action]}
    assert acme.http.put(f"/api/budgets/{budget}", json=change).status_code == 200
    held = [acme.check(bot, action, {"amount": 60, "order": n}).json()["approval_id"] for n in range(2)]
    grant = {"max_uses": 10, "duration_seconds": 600, "ignored_fields": ["order"]}
    # The temporary approval approves the other request too, while the budget still covers it.
    approve(acme, held[0], grant=grant)
    assert acme.http.get(f"/api/approvals/{held[1]}").json()["status"] == "approved"
    assert outcome(acme.check(bot, action, {"amount": 60, "order": 0})) == APPROVED
    assert amounts(acme, budget) == (0, 60, 40)
    assert outcome(acme.check(bot, action, {"amount": 60, "order": 1})) == REQUIRED
    assert amounts(acme, budget) == (0, 60, 40)
