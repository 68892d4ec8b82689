"""Rules of the two gateways in the process of a test: the fake one and the embedded one."""

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
