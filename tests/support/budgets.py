"""Budgets of a gateway under test: created, used, and their totals compared with the reservations and the log."""

from collections import defaultdict
from decimal import Decimal
from typing import Any

import httpx

from support.gateway import LiveGateway, Owner
from support.tables import rows

ACTION = "stripe.refund"

ALLOWED, EXCEEDED, INVALID = (True, "allowed"), (False, "budget_exceeded"), (False, "budget_amount_invalid")
REQUIRED, APPROVED = (False, "approval_required"), (True, "approved")


def create(owner: Owner, **fields: object) -> str:
    """Create a budget for `ACTION` of 100 calls in a month, or with other fields, and return its id."""
    body = {"name": "Refunds", "actions": [ACTION], "window": "month", "limit": 100} | fields
    answer = owner.http.post("/api/budgets", json=body)
    assert answer.status_code == 201, answer.text
    budget_id: str = answer.json()["id"]
    return budget_id


def spend(owner: Owner, agent: str, amount: object, **fields: object) -> httpx.Response:
    """Check a call with an amount."""
    return owner.check(agent, ACTION, {"amount": amount}, **fields)


def outcome(answer: httpx.Response) -> tuple[bool, str]:
    """Return whether a call was allowed, and the code of the decision."""
    assert answer.status_code == 200, answer.text
    return answer.json()["allowed"], answer.headers["x-reason-code"]


def usage(owner: Owner, budget: str) -> list[dict[str, Any]]:
    """Return the totals of a budget."""
    answer = owner.http.get(f"/api/budgets/{budget}/usage")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def amounts(owner: Owner, budget: str) -> tuple[float, float, float]:
    """Return the settled amount, the reserved amount and the rest of a budget with one total."""
    [one] = usage(owner, budget)
    return one["used"], one["reserved"], one["left"]


def reservations(owner: Owner, **filters: str) -> list[dict[str, Any]]:
    """Return the first page of reservations."""
    answer = owner.http.get("/api/budgets/reservations", params=filters)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def assert_consistent(gateway: LiveGateway, owner: Owner, budget: str, limit: Decimal) -> None:
    """Assert that a budget's total is the exact sum of its reservations and of the log, and not above its limit."""
    [(settled, reserved)] = rows(
        gateway, "SELECT settled, reserved FROM budget_totals WHERE budget_id = ?", budget
    )
    query = "SELECT state, amount, settled_amount, decision_id FROM budget_reservations WHERE budget_id = ?"
    sums = defaultdict[str, Decimal](Decimal)
    by_decision = {}
    for state, amount, settled_amount, decision in rows(gateway, query, budget):
        sums[state] += Decimal(settled_amount if state == "settled" else amount)
        assert str(decision) not in by_decision
        by_decision[str(decision)] = (state, amount)
    assert (Decimal(settled), Decimal(reserved)) == (sums["settled"], sums["unsettled"])
    assert Decimal(settled) + Decimal(reserved) <= limit
    # Entries that were sent again have the same decision id and status.
    entries = "SELECT DISTINCT decision_id, status FROM log_entries WHERE organization_id = ? AND decision_id IS NOT NULL"
    logged = dict(rows(gateway, entries, owner.user["organization_id"]))
    states = {"success": "settled", "failed": "released", "denied": "released"}
    assert {decision: state for decision, (state, _) in by_decision.items() if state != "unsettled"} == {
        decision: states[status] for decision, status in logged.items()
    }
    of_log = sum(
        (Decimal(by_decision[one][1]) for one, status in logged.items() if status == "success"), Decimal()
    )
    assert Decimal(settled) == of_log


def reserved_decisions(gateway: LiveGateway, budget: str) -> set[str]:
    """Return the ids of all decisions that reserved an amount of a budget."""
    query = "SELECT decision_id FROM budget_reservations WHERE budget_id = ?"
    return {str(decision) for [decision] in rows(gateway, query, budget)}
