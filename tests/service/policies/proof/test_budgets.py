"""Changes of budgets, whose totals the proof does not contain."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.proof.prove import Proof, Status, prove

BUDGET: dict[str, Any] = {
    "name": "Refunds",
    "agents": ["bot"],
    "actions": ["stripe.refund", "mail.*"],
    "measure": "sum(args.amount)",
    "window": "day",
    "limit": Decimal(100),
}


def _policy(*budgets: dict[str, Any], agents: tuple[str, ...] = ("bot", "other")) -> PolicyDocument:
    return PolicyDocument.model_validate(
        {
            "version": "toolgate.policy/v1",
            "agents": [{"name": name, "permissions": [{"action": "stripe.refund"}]} for name in agents],
            "budgets": list(budgets),
        }
    )


def _compare(old: PolicyDocument, new: PolicyDocument) -> Proof:
    return prove(old, new, moment=datetime(2026, 11, 28, tzinfo=UTC))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"limit": Decimal("99.5")},
        {"agents": ["*"]},
        {"agents": ["other", "bot"]},
        {"actions": ["stripe.*", "mail.*"]},
        {"actions": ["*"]},
    ],
)
def test_equal_or_stricter_budget_is_proven(change: dict[str, Any]) -> None:
    assert _compare(_policy(BUDGET), _policy(BUDGET | change)).status is Status.PROVEN


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"limit": Decimal("100.5")}, "limit"),
        ({"agents": ["other"]}, "agents"),
        ({"actions": ["stripe.refund", "mail.send"]}, "actions"),
        ({"actions": ["mail.*"]}, "actions"),
        ({"window": "hour"}, "window"),
        ({"scope": "agent"}, "scope"),
        ({"measure": "count"}, "measure"),
        ({"currency_arg": "currency"}, "currency_arg"),
        ({"at_limit": "require_approval"}, "at_limit"),
        ({"enabled": False}, "disabled"),
    ],
)
def test_other_change_of_a_budget_is_not_proven(change: dict[str, Any], field: str) -> None:
    proof = _compare(_policy(BUDGET), _policy(BUDGET | change))
    assert proof.status is Status.NOT_PROVEN
    [reason] = proof.reasons
    assert "'Refunds'" in reason
    assert field in reason


def test_removed_and_renamed_budgets_are_not_proven() -> None:
    assert "'Refunds' is removed" in _compare(_policy(BUDGET), _policy()).reasons[0]
    assert "'Refunds' is removed" in _compare(_policy(BUDGET), _policy(BUDGET | {"name": "Other"})).reasons[0]


def test_new_budget_and_removed_disabled_budget_are_proven() -> None:
    assert _compare(_policy(), _policy(BUDGET)).status is Status.PROVEN
    assert _compare(_policy(BUDGET | {"enabled": False}), _policy()).status is Status.PROVEN
    stricter = BUDGET | {"at_limit": "require_approval"}
    assert _compare(_policy(stricter), _policy(BUDGET)).status is Status.PROVEN


def test_budget_without_a_removed_agent_is_proven() -> None:
    old = _policy(BUDGET | {"agents": ["bot", "other"]})
    assert _compare(old, _policy(BUDGET, agents=("bot",))).status is Status.PROVEN


def test_counterexample_is_stronger_than_a_changed_budget() -> None:
    proof = _compare(_policy(BUDGET, agents=("bot",)), _policy())
    assert proof.status is Status.WIDENED
