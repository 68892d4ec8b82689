"""The decision alone, without I/O (decisions §4). Rules have tests of their own."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from toolgate_service.checks import decide as module
from toolgate_service.checks.decide import Allowed, ApprovalRequired, Denied
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext
from toolgate_service.rules.evaluation import NO_RULES

GOOD = AuthContext(
    key_id="k",
    key_agent_id=None,
    organization_id="o",
    environment="production",
    organization_is_active=1,
    plan="free",
    requests_per_minute=None,
    agent_id="bot",
    agent_status="active",
    permission_id="p",
    requires_approval=0,
    max_amount=None,
    amount_required=0,
)
ABSENT = {
    "agent_id": None,
    "agent_status": None,
    "permission_id": None,
    "requires_approval": None,
    "amount_required": None,
}


def decide(
    standing: AuthContext, agent_id: str, action: str, context: Mapping[str, Any]
) -> Allowed | Denied | ApprovalRequired:
    request = CheckRequest(agent_id, action, context, None, None, None, dry_run=False)
    return module.decide(standing, request, NO_RULES, datetime.now(UTC))


def reason(standing: AuthContext, agent_id: str = "bot", **context: object) -> str:
    verdict = decide(standing, agent_id, "pay", context)
    assert isinstance(verdict, Denied)
    return verdict.reason


def test_a_permission_permits() -> None:
    """Nothing stands against it."""
    assert decide(GOOD, "bot", "pay", {}) == Allowed()


def test_an_agents_key_acts_only_as_its_agent() -> None:
    """Another agent is blocked for an agent's own key, whether it exists or not; its own is not."""
    own = GOOD._replace(key_agent_id="bot")
    assert decide(own, "bot", "pay", {}) == Allowed()
    assert "belongs to another agent" in reason(own, "other")
    assert reason(own._replace(**ABSENT), "other") == reason(own, "other")


def test_the_order_is_agent_permission_amount_approval() -> None:
    """Of several reasons the earliest is told: each cure reveals the next (decisions §4)."""
    worst = GOOD._replace(requires_approval=1, max_amount="5", agent_status="inactive", permission_id=None)
    assert "not found" in reason(worst._replace(**ABSENT), amount=9)
    assert "inactive" in reason(worst, amount=9)
    assert "no permission" in reason(worst._replace(agent_status="active"), amount=9)
    above = worst._replace(agent_status="active", permission_id="p")
    assert "above" in reason(above, amount=9)
    assert isinstance(decide(above, "bot", "pay", {"amount": 5}), ApprovalRequired)
    assert decide(above._replace(requires_approval=0), "bot", "pay", {"amount": 5}) == Allowed()


@pytest.mark.parametrize("amount", [Decimal("5.0000000000000000000000001"), 6, Decimal("1e400")])
def test_above_is_above(amount: object) -> None:
    """However little or much."""
    assert "above" in reason(GOOD._replace(max_amount="5"), amount=amount)


@pytest.mark.parametrize("amount", [5, Decimal("5.0"), Decimal("4.9999"), 0, Decimal("-0.0")])
def test_up_to_the_maximum_is_permitted(amount: object) -> None:
    """Equal to the maximum passes."""
    assert decide(GOOD._replace(max_amount="5"), "bot", "pay", {"amount": amount}) == Allowed()


@pytest.mark.parametrize("amount", [None, True, False, "5", [5], {"a": 5}, -1, Decimal("-0.1"), 4.0])
def test_what_is_no_exact_number_is_blocked(amount: object) -> None:
    """Not even a binary float comes through: the reader makes none, and none is believed."""
    assert "must be a non-negative number" in reason(GOOD._replace(max_amount="5"), amount=amount)


@pytest.mark.parametrize("action", ["a\\b", "a'\"b", "pay'"])
def test_a_reason_names_the_action_as_it_is(action: str) -> None:
    """No quoting of ours changes the action's characters (spec §4: text naming the action)."""
    for standing in (GOOD._replace(permission_id=None), GOOD._replace(requires_approval=1)):
        verdict = decide(standing, "bot", action, {})
        assert isinstance(verdict, Denied | ApprovalRequired)
        assert action in verdict.reason
