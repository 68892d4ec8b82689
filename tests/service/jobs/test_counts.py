"""What the upkeep does to the counts of log entries: folds them, and removes them with the entries."""

from functools import partial

import pytest
from support.bulk import write_entries
from support.counted import age_counts, fold_counts, in_the_counts, in_the_log
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test, set_plan
from support.tables import execute, rows
from support.upkeep import Prune, ago

SPANS = "SELECT subject, span, count(*) FROM log_counts WHERE organization_id = ? GROUP BY subject, span ORDER BY 1"


def logged(owner: Owner, agents: int, actions: int) -> None:
    """Log every action of every agent once, of all statuses in turn."""
    for number in range(agents):
        agent = owner.agent()
        for action in range(actions):
            status = ("success", "failed", "denied", "pending")[(number + action) % 4]
            assert owner.log(agent, f"a.{action}", status).status_code == 200


def spans(gateway: LiveGateway, owner: Owner) -> list[tuple[object, ...]]:
    return rows(gateway, SPANS, owner.user["organization_id"])


def test_what_is_over_is_folded_and_nothing_is_lost(attic: LiveGateway, keeper: Owner) -> None:
    """Minutes become one hour, an agent's and an action's hours become days, twice, and the sums stay those of the log."""
    set_plan(attic, keeper, "enterprise")
    logged(keeper, agents=3, actions=5)
    expected = in_the_log(attic, keeper)
    assert in_the_counts(attic, keeper) == expected
    age_counts(attic, keeper, hours=3)
    assert fold_counts(attic, batch=2) > 0
    assert [(subject, span) for subject, span, _ in spans(attic, keeper)] == [("all", 60)]
    assert in_the_counts(attic, keeper) == expected
    logged(keeper, agents=1, actions=5)
    age_counts(attic, keeper, hours=3)
    fold_counts(attic)
    assert in_the_counts(attic, keeper) == in_the_log(attic, keeper)
    assert fold_counts(attic) == 0


def test_this_hour_and_the_one_before_stay_as_they_are(attic: LiveGateway, keeper: Owner) -> None:
    """What may still be asked for by the minute is not folded."""
    set_plan(attic, keeper, "enterprise")
    logged(keeper, agents=1, actions=2)
    age_counts(attic, keeper, hours=1)
    before = spans(attic, keeper)
    fold_counts(attic)
    assert spans(attic, keeper) == before


@pytest.mark.parametrize("folders", [3])
def test_several_that_fold_at_once_add_nothing_twice(attic: LiveGateway, keeper: Owner, folders: int) -> None:
    """Three that fold the same counts, while entries go on being counted, leave the sums of the log."""
    set_plan(attic, keeper, "enterprise")
    logged(keeper, agents=6, actions=6)
    age_counts(attic, keeper, hours=3)
    folding = [partial(fold_counts, attic, 3)] * folders
    together(*folding, lambda: logged(keeper, agents=2, actions=6) or 0)
    assert in_the_counts(attic, keeper) == in_the_log(attic, keeper)


@pytest.mark.parametrize(("plan", "kept"), [("free", 7), ("pro", 30), ("enterprise", None)])
def test_counts_go_when_their_entries_go(
    attic: LiveGateway, keeper: Owner, pruned: Prune, plan: str, kept: int | None
) -> None:
    """An hour stays as long as the plan keeps any of its entries, a day likewise; and no longer."""
    set_plan(attic, keeper, plan)
    organization = keeper.user["organization_id"]
    agent = keeper.agent()
    write_entries(attic, keeper, [agent], 3, newest=ago(days=31))
    write_entries(attic, keeper, [agent], 3, newest=ago(days=8))
    for days in (31, 8, 2):
        for table, key in (
            ("log_counts", f"'all', 60, {hour_before(days)}, ''"),
            ("day_counts", f"'agent', '{agent}', {hour_before(days) // 1440}"),
        ):
            total = ", 3" if table == "day_counts" else ""
            execute(
                attic,
                f"INSERT INTO {table} VALUES ('{organization}', 'production', {key}, 3, 0, 0, 0{total})",
            )
    pruned(batch=1)
    left = [days for days in (2, 8, 31) if kept is None or days < kept]
    hours = "SELECT starts FROM log_counts WHERE organization_id = ? AND span = 60 ORDER BY starts DESC"
    assert rows(attic, hours, organization) == [(hour_before(days),) for days in left]
    days_left = "SELECT day FROM day_counts WHERE organization_id = ? ORDER BY day DESC"
    assert rows(attic, days_left, organization) == [(hour_before(days) // 1440,) for days in left]


def hour_before(days: int) -> int:
    """Return the hour of a moment so many days ago, in minutes since the epoch."""
    return int(ago(days=days).timestamp()) // 3600 * 60


def test_counts_of_test_entries_are_kept_for_seven_days(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    """Whatever the plan, and production's stay (decisions §8)."""
    set_plan(attic, keeper, "enterprise")
    made = keeper.http.post("/api/agents", json={"name": "t"}, params={"environment": "test"}).json()["id"]
    body = {"agent_id": made, "action": "a", "status": "success"}
    headers = {"X-API-Key": key_to_test(attic, keeper)}
    assert keeper.http.post("/sdk/log", json=body, headers=headers).status_code == 200
    logged(keeper, agents=1, actions=1)
    age_counts(attic, keeper, hours=9 * 24)
    fold_counts(attic)
    pruned()
    assert {environment for environment, *_ in in_the_counts(attic, keeper)} == {"production"}
