"""Policies that tests plan and apply."""

from typing import Any

from support.gateway import Owner

VERSION = "toolgate.policy/v1"
POLICY: dict[str, Any] = {
    "version": VERSION,
    "agents": [
        {
            "name": "refund-bot",
            "description": "Refunds orders",
            "permissions": [{"action": "stripe.refund", "max_amount": 50.5, "amount_required": True}],
        },
        {"name": "mailer", "enabled": False},
    ],
    "rules": [
        {
            "name": "No refunds abroad",
            "effect": "forbid",
            "actions": ["stripe.*"],
            "when": "args.country != 'DE'",
        },
        {
            "name": "Two people",
            "effect": "require_approval",
            "agents": ["refund-bot"],
            "actions": ["db.*"],
            "approval": {"quorum": 2, "ttl": 600},
        },
    ],
    "budgets": [{"name": "Refunds", "actions": ["stripe.refund"], "window": "day", "limit": 100}],
}


def current(owner: Owner) -> dict[str, Any]:
    state: dict[str, Any] = owner.http.get("/api/policy").raise_for_status().json()
    return state


def plan(owner: Owner, policy: dict[str, Any]) -> dict[str, Any]:
    answer = owner.http.post("/api/policy/plan", json={"policy": policy})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def apply(owner: Owner, policy: dict[str, Any], message: str = "Test") -> dict[str, Any]:
    body = {"policy": policy, "base": current(owner)["digest"], "message": message}
    answer = owner.http.post("/api/policy/apply", json=body)
    assert answer.status_code == 200, answer.text
    applied: dict[str, Any] = answer.json()
    return applied


def revision(owner: Owner, number: int) -> str:
    """Return the id of the revision with this number."""
    [found] = owner.http.get("/api/policy/revisions", params={"number": number}).json()
    assert found["number"] == number
    return str(found["id"])


def summary(changes: list[dict[str, Any]]) -> list[str]:
    return [f"{one['operation']} {one['resource']} {one['name']}" for one in changes]
