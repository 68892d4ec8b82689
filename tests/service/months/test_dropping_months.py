"""A month of which nobody keeps anything goes whole; whatever somebody keeps stays (spec §8, decisions §7, §8)."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from support.bulk import write_entries
from support.databases import finished
from support.gateway import LiveGateway, Owner
from support.months import connected, fetched, named, names, opened, parts, run, with_months
from support.tables import execute
from support.upkeep import ago_text

from toolgate_service.core.plans import BUILT_IN
from toolgate_service.logs import partitions
from toolgate_service.logs.schemas import entry_bytes
from toolgate_service.logs.service import TEST_DAYS, retention_days
from toolgate_service.maintenance import prune

pytestmark = pytest.mark.postgresql_only("SQLite keeps the log in one table")

#: the middle of the month three months ago: older than 60 days, and younger than 123
OLD = datetime.now(UTC) - timedelta(days=datetime.now(UTC).day + 74)


@pytest.fixture
def months(calendar: LiveGateway, keeper: Owner) -> str:
    """The database, with a part for each of the last seven months; whoever else there is keeps entries for a week."""
    url = calendar.database_url
    with_months(url, -6, 2)
    run(url, "UPDATE organizations SET plan = 'free', plan_changed_at = NULL, retention_days_before = NULL")
    write_entries(calendar, keeper, [keeper.agent()], 20, newest=OLD)
    write_entries(calendar, keeper, [keeper.agent()], 3)
    return url


def pruned(url: str) -> Counter[str]:
    async def once() -> Counter[str]:
        async with opened(url) as database:
            return await prune(database, BUILT_IN, 100)

    return finished(once())


def old(url: str) -> list[tuple[object, ...]]:
    """Return how many old entries there are."""
    return fetched(url, "SELECT count(*) FROM log_entries WHERE created_at < now() - interval '40 days'")


def test_a_month_that_nobody_keeps_goes_whole(months: str, keeper: Owner) -> None:
    """Its entries are counted as removed, the others stay, and there is no gap in front."""
    assert pruned(months)["log_entries"] == 20
    assert set(names(months)).isdisjoint({named(month) for month in range(-6, -1)})
    assert len(keeper.entries(limit=100)) == 3
    found = parts(months)
    assert found[0].begins is None
    assert all(one.ends == other.begins for one, other in pairwise(found))
    assert pruned(months)["log_entries"] == 0


@pytest.mark.parametrize(
    ("plan", "changed", "before"),
    [("enterprise", None, None), ("free", 29, -1), ("free", 1, 365)],
)
def test_a_month_that_somebody_keeps_stays(
    calendar: LiveGateway,
    months: str,
    keeper: Owner,
    plan: str,
    changed: int | None,
    before: int | None,
) -> None:
    """By another's plan, or the one that it had before; what others no longer keep of it is deleted."""
    with Owner(calendar.url, organization="Other") as other:
        execute(
            calendar,
            "UPDATE organizations SET plan = ?, plan_changed_at = ?, retention_days_before = ? WHERE id = ?",
            *(plan, changed and ago_text(days=changed), before, other.user["organization_id"]),
        )
        write_entries(calendar, other, [other.agent()], 7, newest=OLD)
        assert pruned(months)["log_entries"] == 20
        assert f"log_entries_{OLD:%Y_%m}" in names(months)
        assert len(other.entries(limit=100)) == 7
        assert len(keeper.entries(limit=100)) == 3


def test_an_emptied_month_goes_although_somebody_keeps_entries_for_ever(
    calendar: LiveGateway, months: str
) -> None:
    """In front of the oldest entry there is nothing to keep."""
    with Owner(calendar.url, organization="Other"):
        run(months, "UPDATE organizations SET plan = 'enterprise' WHERE name = 'Other'")
        assert pruned(months)["log_entries"] == 20
        pruned(months)
        assert f"log_entries_{OLD:%Y_%m}" not in names(months)


def test_whoever_came_to_keep_more_meanwhile_keeps_it(months: str) -> None:
    """Between the look and the drop an organization got a plan that keeps entries for ever."""

    async def late() -> None:
        async with connected(months) as connection, connection.transaction():
            over = [part for part in parts(months) if part.name != named(2) and part.ends < datetime.now(UTC)]
            await connection.execute("UPDATE organizations SET plan = 'enterprise'")
            await partitions._drop(
                connection,
                over,
                datetime.now(UTC),
                lambda plan, since, before: retention_days(BUILT_IN, plan, since, before, datetime.now(UTC)),
                TEST_DAYS,
            )

    finished(late())
    assert f"log_entries_{OLD:%Y_%m}" in names(months)
    assert old(months) == [(20,)]


def test_an_export_is_not_cut_off(months: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody reads the log no month is dropped, and what nobody keeps is deleted entry by entry."""
    monkeypatch.setattr(partitions, "DROP_ATTEMPTS", 2)
    monkeypatch.setattr(partitions, "LOCK_PAUSE", 0)

    async def meanwhile() -> None:
        async with connected(months) as reading, reading.transaction(isolation="repeatable_read"):
            everything = "SELECT count(*) FROM log_entries WHERE created_at < now() - interval '40 days'"
            assert await reading.fetchval(everything) == 20
            assert pruned(months)["log_entries"] == 20
            assert await reading.fetchval(everything) == 20

    finished(meanwhile())
    assert f"log_entries_{OLD:%Y_%m}" in names(months)
    assert old(months) == [(0,)]
    pruned(months)
    assert f"log_entries_{OLD:%Y_%m}" not in names(months)


def test_bytes_of_test_entries_are_taken_off(calendar: LiveGateway, months: str, keeper: Owner) -> None:
    """Those of a month that goes whole too."""
    made = keeper.http.post("/api/agents", json={"name": "t"}, params={"environment": "test"}).json()["id"]
    write_entries(calendar, keeper, [made], 9, newest=OLD, environment="test")
    write_entries(calendar, keeper, [made], 3, environment="test")
    organization = keeper.user["organization_id"]
    size = entry_bytes("action.0", None)
    sizes = "UPDATE environments SET log_bytes = ? WHERE organization_id = ? AND name = 'test'"
    execute(calendar, sizes, 12 * size, organization)
    assert pruned(months)["log_entries"] == 29
    left = f"SELECT log_bytes FROM environments WHERE name = 'test' AND organization_id = '{organization}'"
    assert fetched(months, left) == [(3 * size,)]
