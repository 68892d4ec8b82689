"""`toolgate budgets`, in this process, at a live gateway."""

from typing import Any

import pytest
from support.gateway import Owner
from support.shell import Shell

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


def budgets(owner: Owner, environment: str = "production") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get(f"/api/budgets?environment={environment}").json()
    return found


def test_budget_is_created_used_and_shown(shell: Shell, owner: Owner) -> None:
    agent = owner.agent("refund-bot")
    owner.permit(agent, "stripe.refund")
    assert shell.done("budgets", "list").startswith("no budgets in the production environment at http")
    printed = shell.allowed(
        *("budgets", "create", "Refunds", "--limit", "99.50", "--window", "day(Europe/Berlin)"),
        *("--action", "stripe.*", "--agent", "refund-bot", "--measure", "sum(args.amount)"),
        *("--currency-arg", "currency", "--scope", "agent", "--at-limit", "require_approval"),
    )
    [made] = budgets(owner)
    assert printed == f"created Refunds, budget {made['id']}\n"
    assert {name: made[name] for name in made if not name.endswith(("id", "_at", "_by"))} == {
        "name": "Refunds",
        "scope": "agent",
        "agents": [agent],
        "actions": ["stripe.*"],
        "measure": "sum(args.amount)",
        "currency_arg": "currency",
        "window": "day(Europe/Berlin)",
        "limit": 99.5,
        "at_limit": "require_approval",
        "enabled": True,
    }
    assert "no call used the budget in the current window" in shell.done("budgets", "show", "Refunds")
    owner.check(agent, "stripe.refund", {"amount": 40, "currency": "EUR"})
    shown = shell.done("budgets", "show", made["id"][:-3])
    for text in ("99.5", "stripe.*", "EUR", "40", "59.5"):
        assert text in shown
    assert shell.json("budgets", "list") == [made]
    [total] = shell.json("budgets", "show", "Refunds")["usage"]
    assert (total["reserved"], total["left"]) == (40, 59.5)


def test_budget_is_changed_and_deleted(shell: Shell, owner: Owner) -> None:
    shell.allowed("budgets", "create", "Calls", "--limit", "5", "--window", "hour", "--action", "*")
    [before] = budgets(owner)
    options = ("--limit", "7", "--at-limit", "require_approval", "--disable", "--name", "More")
    assert shell.allowed("budgets", "update", "Calls", *options) == f"updated More, budget {before['id']}\n"
    [after] = budgets(owner)
    changed = {"limit": 7, "at_limit": "require_approval", "enabled": False, "name": "More"}
    assert after | {"updated_at": None} == before | changed
    assert shell.allowed("budgets", "delete", "More", "--yes") == f"deleted More, budget {before['id']}\n"
    assert budgets(owner) == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("create", "x", "--window", "day", "--action", "a"), "--limit"),
        (("create", "x", "--limit", "-1", "--window", "day", "--action", "a"), "invalid --limit"),
        (("create", "x", "--limit", "many", "--window", "day", "--action", "a"), "invalid --limit"),
        (("update", "Kept"), "toolgate budgets update --help"),
        (("update", "nothing", "--disable"), "toolgate budgets list"),
        (("show", "nothing"), "toolgate budgets list"),
        (("delete", "0000", "--yes"), "toolgate budgets list"),
    ],
    ids=" ".join,
)
def test_invalid_options_are_named_and_change_nothing(
    shell: Shell, owner: Owner, arguments: tuple[str, ...], hint: str
) -> None:
    body = {"name": "Kept", "actions": ["a.b"], "window": "day", "limit": 1}
    owner.http.post("/api/budgets", json=body)
    before = budgets(owner)
    assert hint in shell.refused("budgets", *arguments)
    assert budgets(owner) == before
