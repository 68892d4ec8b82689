"""Rules and budgets of the two gateways in the process of a test: the fake one and the embedded one."""

from decimal import Decimal
from typing import Any, Final

from support.freezes import call_api
from toolgate.embedded import EmbeddedGateway
from toolgate.testing import FakeGateway

#: conditions as CEL expressions, and the functions that replace them in the fake gateway
CONDITIONS: Final = {
    None: None,
    "args.amount > 1": lambda args: args["amount"] > 1,
    "args.amount == 1 || args.amount == 2": lambda args: args["amount"] in {1, 2},
    "args.missing > 1": lambda args: args["missing"] > 1,
    "args.amount": lambda args: args["amount"],
}


def add_rule(
    gateway: FakeGateway | EmbeddedGateway,
    effect: Any,
    action: str,
    when: str | None = None,
    *,
    name: str = "a rule",
) -> str:
    """Create a rule whose condition is one of `CONDITIONS`, and return its id."""
    if isinstance(gateway, FakeGateway):
        return gateway.rule(effect, action, when=CONDITIONS[when], name=name)
    body = {"name": name, "effect": effect, "actions": [action], "when": when}
    made: str = call_api(gateway, "POST", "/api/rules", body)["id"]
    return made


def delete_rules(gateway: FakeGateway | EmbeddedGateway) -> None:
    """Delete all rules."""
    if isinstance(gateway, FakeGateway):
        gateway._conditional_rules.clear()
        return
    for each in call_api(gateway, "GET", "/api/rules?limit=100"):
        call_api(gateway, "DELETE", f"/api/rules/{each['id']}")


def add_budget(
    gateway: FakeGateway | EmbeddedGateway,
    limit: float | Decimal,
    *actions: str,
    measure: str = "count",
    at_limit: Any = "deny",
    name: str = "a budget",
) -> None:
    """Create a budget. That of the embedded gateway has a window that does not end during the tests."""
    if isinstance(gateway, FakeGateway):
        gateway.budget(limit, *actions, measure=measure, at_limit=at_limit, name=name)
        return
    body = {
        "name": name,
        "actions": actions or ["*"],
        "measure": measure,
        "window": "rolling(2678400)",
        "limit": float(limit),
        "at_limit": at_limit,
    }
    call_api(gateway, "POST", "/api/budgets", body)


def delete_budgets(gateway: FakeGateway | EmbeddedGateway) -> None:
    """Delete all budgets."""
    if isinstance(gateway, FakeGateway):
        gateway._budgets.clear()
        return
    for each in call_api(gateway, "GET", "/api/budgets?limit=100"):
        call_api(gateway, "DELETE", f"/api/budgets/{each['id']}")


def without_window(reason: str | None) -> str | None:
    """Return the reason of a decision without the length of a budget's window, because the fake has no windows."""
    return reason and reason.replace("this window of 2678400 seconds", "this window")
