"""Checks that reserve amounts of budgets, and log entries that settle or release them."""

from decimal import Decimal

import pytest
from support.budgets import (
    ACTION,
    ALLOWED,
    EXCEEDED,
    INVALID,
    REQUIRED,
    amounts,
    create,
    outcome,
    reservations,
    spend,
    usage,
)
from support.gateway import Owner


def test_calls_are_counted_up_to_the_limit(acme: Owner, bot: str) -> None:
    budget = create(acme, measure="count", limit=2)
    assert usage(acme, budget) == []
    first = acme.check(bot, ACTION)
    assert outcome(first) == ALLOWED
    assert first.headers["x-budget-left"] == "1"
    assert outcome(acme.check(bot, ACTION)) == ALLOWED
    denied = acme.check(bot, ACTION)
    assert outcome(denied) == EXCEEDED
    assert (
        denied.json()["reason"]
        == "Budget 'Refunds' does not cover another call: 0 of 2 is left in this month"
    )
    assert "x-budget-left" not in denied.headers
    assert amounts(acme, budget) == (0, 2, 0)


def test_sums_are_exact(acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)", limit=1)
    answers = [spend(acme, bot, 0.1) for _ in range(10)]
    assert {outcome(answer) for answer in answers} == {ALLOWED}
    assert answers[-1].headers["x-budget-left"] == "0"
    denied = spend(acme, bot, 0.1)
    assert outcome(denied) == EXCEEDED
    assert denied.json()["reason"] == (
        "Budget 'Refunds' does not cover the amount 0.1: 0 of 1 is left in this month"
    )
    assert amounts(acme, budget) == (0, 1, 0)


def test_smaller_amount_fits_after_a_denied_larger_one(acme: Owner, bot: str) -> None:
    create(acme, measure="sum(args.amount)")
    assert outcome(spend(acme, bot, 70)) == ALLOWED
    assert outcome(spend(acme, bot, 31)) == EXCEEDED
    assert outcome(spend(acme, bot, 30)) == ALLOWED


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        ({}, "context.amount is required"),
        ({"amount": -1}, "context.amount must be a non-negative number, not -1"),
        ({"amount": "ten"}, "context.amount must be a non-negative number, not 'ten'"),
        ({"amount": True}, "context.amount must be a non-negative number, not true"),
        ({"amount": {"redacted": "x"}}, "context.amount must be a non-negative number, not an object"),
        ({"amount": 1}, "context.currency is required"),
        (
            {"amount": 1, "currency": "€"},
            "context.currency must be a currency of 1-16 letters and digits, not '€'",
        ),
    ],
)
def test_call_without_a_valid_amount_is_denied(
    acme: Owner, bot: str, context: dict[str, object], reason: str
) -> None:
    budget = create(acme, measure="sum(args.amount)", currency_arg="currency")
    denied = acme.check(bot, ACTION, context)
    assert outcome(denied) == INVALID
    assert denied.json()["reason"] == f"{reason}, because of budget 'Refunds'"
    assert usage(acme, budget) == []


def test_each_currency_has_its_own_total(acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)", currency_arg="currency", limit=10)
    for currency in ("eur", "USD"):
        assert outcome(acme.check(bot, ACTION, {"amount": 10, "currency": currency})) == ALLOWED
    denied = acme.check(bot, ACTION, {"amount": 1, "currency": "EUR"})
    assert outcome(denied) == EXCEEDED
    assert "the amount 1 EUR: 0 EUR of 10 EUR is left" in denied.json()["reason"]
    assert {(one["currency"], one["reserved"]) for one in usage(acme, budget)} == {("EUR", 10), ("USD", 10)}


@pytest.mark.parametrize(
    ("scope", "subjects"),
    [("organization", 1), ("agent", 2), ("run", 3)],
)
def test_each_subject_of_the_scope_has_its_own_total(
    acme: Owner, bot: str, scope: str, subjects: int
) -> None:
    other = acme.agent("eve")
    acme.permit(other, ACTION)
    budget = create(acme, scope=scope, limit=100)
    for agent, run in ((bot, "a"), (bot, "b"), (other, "b"), (other, None)):
        assert outcome(acme.check(agent, ACTION, run_id=run)) == ALLOWED
    found = usage(acme, budget)
    assert len(found) == subjects
    assert sum(one["reserved"] for one in found) == 4
    named = {one["subject"] for one in found}
    assert named == {"organization": {None}, "agent": {bot, other}, "run": {"a", "b", None}}[scope]


def test_only_matching_agents_and_actions_count(acme: Owner, bot: str) -> None:
    other = acme.agent("eve")
    for action in (ACTION, "mail.send"):
        acme.permit(other, action)
    acme.permit(bot, "mail.send")
    budget = create(acme, agents=["bot"], actions=["stripe.*"], limit=1)
    assert outcome(acme.check(other, ACTION)) == ALLOWED
    assert "x-budget-left" not in acme.check(bot, "mail.send").headers
    assert outcome(acme.check(bot, ACTION)) == ALLOWED
    assert outcome(acme.check(bot, ACTION)) == EXCEEDED
    assert outcome(acme.check(other, ACTION)) == ALLOWED
    assert amounts(acme, budget) == (0, 1, 0)


def test_nothing_is_reserved_unless_all_budgets_cover_the_call(acme: Owner, bot: str) -> None:
    wide = create(acme, name="Wide", measure="sum(args.amount)", limit=1000)
    narrow = create(acme, name="Narrow", measure="sum(args.amount)", limit=10)
    assert outcome(spend(acme, bot, 11)) == EXCEEDED
    assert usage(acme, wide) == []
    answer = spend(acme, bot, 10)
    assert outcome(answer) == ALLOWED
    assert answer.headers["x-budget-left"] == "0"
    assert (amounts(acme, wide), amounts(acme, narrow)) == ((0, 10, 990), (0, 10, 0))
    assert {one["decision_id"] for one in reservations(acme)} == {answer.headers["x-decision-id"]}


@pytest.mark.parametrize(
    ("status", "context", "expected"),
    [
        ("success", None, (40, 0, 60)),
        ("success", {"amount": 25.5}, (25.5, 0, 74.5)),
        ("success", {"amount": 150}, (150, 0, -50)),
        ("success", {"amount": "redacted"}, (40, 0, 60)),
        ("success", {"amount": -1}, (40, 0, 60)),
        ("success", {"charge": "ch_1"}, (40, 0, 60)),
        ("failed", {"amount": 40}, (0, 0, 100)),
        ("denied", None, (0, 0, 100)),
        ("pending", {"amount": 1}, (0, 40, 60)),
    ],
)
def test_log_entry_settles_or_releases_the_reservation(
    acme: Owner, bot: str, status: str, context: object, expected: tuple[float, float, float]
) -> None:
    budget = create(acme, measure="sum(args.amount)")
    decision = spend(acme, bot, 40).headers["x-decision-id"]
    assert amounts(acme, budget) == (0, 40, 60)
    for _ in range(2):
        assert acme.log(bot, ACTION, status, decision_id=decision, context=context).status_code == 200
        assert amounts(acme, budget) == expected
    [one] = reservations(acme, budget_id=budget)
    state = {"success": "settled", "pending": "unsettled"}.get(status, "released")
    assert (one["state"], one["settled_amount"]) == (state, expected[0] if state == "settled" else None)
    assert (one["settled_at"] is None) == (state == "unsettled")


def test_last_final_log_entry_determines_the_state(acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)")
    decision = spend(acme, bot, 40).headers["x-decision-id"]
    for status, amount, expected in (
        ("failed", 40, (0, 0, 100)),
        ("success", 30, (30, 0, 70)),
        ("pending", 40, (30, 0, 70)),
        ("success", 20, (20, 0, 80)),
        ("denied", 20, (0, 0, 100)),
    ):
        acme.log(bot, ACTION, status, decision_id=decision, context={"amount": amount})
        assert amounts(acme, budget) == expected


def test_entries_of_one_request_settle_in_their_order(acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)")
    decisions = [spend(acme, bot, 10).headers["x-decision-id"] for _ in range(3)]
    entries = [
        {"agent_id": bot, "action": ACTION, "status": status, "decision_id": decision}
        for decision in decisions
        for status in ("failed", "success")
    ]
    answer = acme.http.post("/sdk/logs", json={"entries": entries}, headers={"X-API-Key": acme.key})
    assert answer.status_code == 200, answer.text
    assert amounts(acme, budget) == (30, 0, 70)


@pytest.mark.parametrize("other", ["agent", "action"])
def test_entry_of_another_agent_or_action_does_not_settle(acme: Owner, bot: str, other: str) -> None:
    budget = create(acme)
    decision = acme.check(bot, ACTION).headers["x-decision-id"]
    agent, action = (acme.agent("eve"), ACTION) if other == "agent" else (bot, "mail.send")
    assert acme.log(agent, action, "failed", decision_id=decision).status_code == 200
    assert amounts(acme, budget) == (0, 1, 99)


def test_entry_of_another_organization_does_not_settle(acme: Owner, bot: str, rival: Owner) -> None:
    budget = create(acme)
    stranger = rival.agent()
    create(rival, name="theirs", actions=["*"])
    decision = acme.check(bot, ACTION).headers["x-decision-id"]
    assert rival.log(stranger, ACTION, "failed", decision_id=decision).status_code == 200
    assert amounts(acme, budget) == (0, 1, 99)


def test_unsettled_reservations_are_listed_with_their_age(acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)")
    decisions = [spend(acme, bot, amount, run_id="run-7").headers["x-decision-id"] for amount in (10, 20.5)]
    acme.log(bot, ACTION, decision_id=decisions[0])
    [one] = reservations(acme, state="unsettled")
    assert {name: one[name] for name in one if name not in {"id", "created_at", "age_seconds"}} == {
        "budget_id": budget,
        "budget_name": "Refunds",
        "decision_id": decisions[1],
        "agent_id": bot,
        "action": ACTION,
        "run_id": "run-7",
        "subject": None,
        "currency": None,
        "amount": 20.5,
        "settled_amount": None,
        "state": "unsettled",
        "over_limit": False,
        "approval_id": None,
        "settled_at": None,
    }
    assert 0 <= one["age_seconds"] < 60
    assert [one["decision_id"] for one in reservations(acme, state="settled")] == decisions[:1]
    assert reservations(acme, budget_id="x") == []


def test_retry_with_the_same_key_reserves_once(acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)")
    body = {"agent_id": bot, "action": ACTION, "context": {"amount": 40}}
    headers = {"X-API-Key": acme.key, "Idempotency-Key": "once"}
    answers = [acme.http.post("/sdk/check", json=body, headers=headers) for _ in range(3)]
    assert {outcome(answer) for answer in answers} == {ALLOWED}
    for name in ("x-decision-id", "x-budget-left"):
        assert len({answer.headers[name] for answer in answers}) == 1
    assert amounts(acme, budget) == (0, 40, 60)
    other = acme.http.post("/sdk/check", json=body | {"context": {"amount": 1}}, headers=headers)
    assert outcome(other) == ALLOWED
    assert amounts(acme, budget) == (0, 41, 59)


def test_dry_run_shows_the_outcome_and_reserves_nothing(acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)")
    tried = spend(acme, bot, 40, dry_run=True)
    assert outcome(tried) == ALLOWED
    assert tried.headers["x-budget-left"] == "60"
    assert outcome(spend(acme, bot, 101, dry_run=True)) == EXCEEDED
    assert outcome(acme.check(bot, ACTION, {}, dry_run=True)) == INVALID
    assert usage(acme, budget) == []
    assert reservations(acme) == []


def test_rule_that_allows_a_call_does_not_bypass_the_budget(acme: Owner) -> None:
    agent = acme.agent()
    create(acme, limit=1)
    rule = {"name": "Refunds are fine", "effect": "allow", "actions": ["stripe.*"]}
    assert acme.http.post("/api/rules", json=rule).status_code == 201
    first = acme.check(agent, ACTION)
    assert outcome(first) == ALLOWED
    assert "x-rule-id" in first.headers
    assert outcome(acme.check(agent, ACTION)) == EXCEEDED


@pytest.mark.parametrize("limit", [Decimal("1e300"), Decimal("1e-300")])
def test_very_large_and_very_small_amounts_are_not_rounded(acme: Owner, bot: str, limit: Decimal) -> None:
    budget = create(acme, measure="sum(args.amount)", limit=float(limit))
    for amount in (float(limit / 2), float(limit / 2)):
        assert outcome(spend(acme, bot, amount)) == ALLOWED
    assert outcome(spend(acme, bot, 1e-320)) == EXCEEDED
    assert usage(acme, budget)[0]["left"] == 0


@pytest.mark.parametrize("status", ["failed", "success"])
def test_key_of_a_call_that_has_ended_is_decided_and_reserved_again(
    acme: Owner, bot: str, status: str
) -> None:
    budget = create(acme, measure="sum(args.amount)")
    body = {"agent_id": bot, "action": ACTION, "context": {"amount": 100}}
    headers = {"X-API-Key": acme.key, "Idempotency-Key": "ended"}
    first = acme.http.post("/sdk/check", json=body, headers=headers)
    assert outcome(first) == ALLOWED
    assert outcome(acme.http.post("/sdk/check", json=body, headers=headers)) == ALLOWED
    acme.log(bot, ACTION, status=status, decision_id=first.headers["x-decision-id"])
    again = acme.http.post("/sdk/check", json=body, headers=headers)
    assert outcome(again) == (ALLOWED if status == "failed" else EXCEEDED)
    assert again.headers["x-decision-id"] != first.headers["x-decision-id"]
    assert amounts(acme, budget) == ((0, 100, 0) if status == "failed" else (100, 0, 0))


def test_repeated_check_needs_an_approval_that_is_required_since(acme: Owner, bot: str) -> None:
    create(acme)
    body = {"agent_id": bot, "action": ACTION, "context": {"amount": 1}}
    headers = {"X-API-Key": acme.key, "Idempotency-Key": "before the rule"}
    assert outcome(acme.http.post("/sdk/check", json=body, headers=headers)) == ALLOWED
    rule = {"name": "since", "effect": "require_approval", "actions": [ACTION]}
    assert acme.http.post("/api/rules", json=rule).status_code == 201
    assert outcome(acme.http.post("/sdk/check", json=body, headers=headers)) == REQUIRED
