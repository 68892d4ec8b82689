"""How long decisions and their contexts are kept."""

from datetime import datetime, timedelta

import pytest
from support.databases import finished
from support.decisions import write_decisions
from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from support.upkeep import Prune, ago, ago_text

from toolgate_service.db.database import open_database
from toolgate_service.decisions.service import ContextRetention


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


def with_context(gateway: LiveGateway, owner: Owner) -> int:
    query = "SELECT count(*) FROM decisions WHERE organization_id = ? AND context IS NOT NULL"
    number: int = rows(gateway, query, owner.user["organization_id"])[0][0]
    return number


def add_contexts(gateway: LiveGateway, owner: Owner) -> None:
    # Every seventh record has none, as if its context had been too long.
    query = "UPDATE decisions SET context = ? WHERE organization_id = ? AND id NOT LIKE '%7'"
    if gateway.database_url.startswith("postgresql"):
        query = query.replace("id NOT LIKE", "id::text NOT LIKE")
    execute(gateway, query, "{}", owner.user["organization_id"])


def test_contexts_are_removed_after_their_retention(attic: LiveGateway, keeper: Owner, pruned: Prune) -> None:
    on_plan(attic, keeper, "enterprise")
    agent = keeper.agent()
    write_decisions(attic, keeper, [agent], 250, newest=ago(days=30, minutes=1))
    add_contexts(attic, keeper)
    old = with_context(attic, keeper)
    write_decisions(attic, keeper, [agent], 20, newest=ago(days=30, minutes=-10))
    add_contexts(attic, keeper)
    recent = with_context(attic, keeper) - old
    contexts = ContextRetention(30)
    assert pruned(batch=100, contexts=contexts)["contexts of decisions"] == old > 200
    assert with_context(attic, keeper) == recent
    assert count(keeper) == 270
    assert pruned(contexts=contexts)["contexts of decisions"] == 0
    assert pruned(contexts=ContextRetention(0))["contexts of decisions"] == recent
    assert with_context(attic, keeper) == 0


def test_contexts_that_reach_their_age_later_are_removed(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    on_plan(attic, keeper, "enterprise")
    contexts = ContextRetention(30)
    assert pruned(contexts=contexts)["contexts of decisions"] == 0
    write_decisions(attic, keeper, [keeper.agent()], 5, newest=ago(days=30, minutes=-1))
    organization = keeper.user["organization_id"]
    execute(attic, "UPDATE decisions SET context = '{}' WHERE organization_id = ?", organization)
    assert pruned(contexts=contexts)["contexts of decisions"] == 0
    [(newest,)] = rows(attic, "SELECT max(created_at) FROM decisions WHERE organization_id = ?", organization)
    moment = datetime.fromisoformat(newest) + timedelta(days=30, seconds=1)
    assert finished(clear(attic, contexts, moment)) == 5
    assert with_context(attic, keeper) == 0


async def clear(gateway: LiveGateway, contexts: ContextRetention, moment: datetime) -> int:
    database = open_database(gateway.database_url)
    await database.start()
    try:
        return await contexts.clear(database, 2, moment)
    finally:
        await database.close()
