"""How long decisions are kept: as long as log entries."""

import pytest
from support.decisions import write_decisions
from support.gateway import LiveGateway, Owner
from support.tables import execute
from support.upkeep import Prune, ago, ago_text


def count(owner: Owner, **params: str) -> int:
    return int(owner.http.get("/api/decisions", params=params).headers["X-Total-Count"])


def on_plan(gateway: LiveGateway, owner: Owner, plan: str, **changed: object) -> None:
    for name, value in {"plan": plan, **changed}.items():
        statement = f"UPDATE organizations SET {name} = ? WHERE id = ?"
        execute(gateway, statement, value, owner.user["organization_id"])


@pytest.mark.parametrize(("plan", "days"), [("free", 7), ("pro", 30), ("business", 90)])
def test_decisions_are_kept_as_long_as_the_plan_keeps_log_entries(
    attic: LiveGateway, keeper: Owner, pruned: Prune, plan: str, days: int
) -> None:
    agent = keeper.agent()
    on_plan(attic, keeper, plan)
    write_decisions(attic, keeper, [agent], 5, newest=ago(days=days, minutes=-1))
    write_decisions(attic, keeper, [agent], 250, newest=ago(days=days, minutes=1))
    assert pruned(batch=100)["decisions"] == 250
    assert count(keeper) == 5
    assert pruned()["decisions"] == 0


def test_enterprise_plan_keeps_decisions_without_limit(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    on_plan(attic, keeper, "enterprise")
    write_decisions(attic, keeper, [keeper.agent()], 5, newest=ago(days=5000))
    assert pruned()["decisions"] == 0
    assert count(keeper) == 5


def test_longer_retention_applies_for_thirty_days_after_a_change(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    on_plan(attic, keeper, "free", plan_changed_at=ago_text(days=29), retention_days_before=90)
    agent = keeper.agent()
    for days in (6, 80, 100):
        write_decisions(attic, keeper, [agent], 1, newest=ago(days=days))
    assert pruned()["decisions"] == 1
    on_plan(attic, keeper, "free", plan_changed_at=ago_text(days=31))
    assert pruned()["decisions"] == 1
    assert count(keeper) == 1


def test_decisions_of_the_test_environment_are_kept_for_seven_days(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    on_plan(attic, keeper, "enterprise")
    test = {"environment": "test"}
    agent = keeper.http.post("/api/agents", json={"name": "t"}, params=test).json()["id"]
    write_decisions(attic, keeper, [agent], 3, newest=ago(days=6.9), environment="test")
    write_decisions(attic, keeper, [agent], 4, newest=ago(days=7.1), environment="test")
    write_decisions(attic, keeper, [keeper.agent()], 2, newest=ago(days=7.1))
    assert pruned()["decisions"] == 4
    assert (count(keeper, environment="test"), count(keeper)) == (3, 2)
