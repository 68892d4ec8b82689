"""The months of the log on PostgreSQL are there before their first entry, and without them nothing is refused."""

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from secrets import token_hex

import pytest
from sqlalchemy import make_url
from support.bulk import write_entries
from support.databases import empty_database
from support.gateway import LiveGateway, Owner
from support.months import connected, fetched, named, names, opened, parts, run, this_month, with_months
from support.waiting import eventually

from toolgate_service.core.errors import StorageFault
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.logs import partitions
from toolgate_service.logs.partitions import Partition, exclusive_access, make_months, missing_periods
from toolgate_service.logs.service import make_months as make_in_upkeep

pytestmark = pytest.mark.postgresql_only("SQLite keeps the log in one table")


def part(begins: tuple[int, int] | None, ends: tuple[int, int]) -> Partition:
    return Partition("p", begins and datetime(*begins, 1, tzinfo=UTC), datetime(*ends, 1, tzinfo=UTC), 0)


@pytest.mark.parametrize(
    ("moment", "months"),
    [
        (datetime(2026, 11, 1, tzinfo=UTC), []),
        (datetime(2026, 11, 30, 23, 59, 59, 999999, tzinfo=UTC), []),
        (datetime(2026, 12, 1, tzinfo=UTC), [(2027, 2)]),
        (datetime(2027, 1, 31, tzinfo=UTC), [(2027, 2), (2027, 3)]),
        (datetime(2027, 5, 3, tzinfo=UTC), [(2027, 2), (2027, 5), (2027, 6), (2027, 7)]),
    ],
)
def test_with_each_month_the_one_after_the_next_is_needed(
    moment: datetime, months: list[tuple[int, int]]
) -> None:
    """By the UTC calendar, to the microsecond; what was missed, and holds nothing, is one stretch."""
    there = [part(None, (2026, 11)), part((2026, 11), (2027, 2))]
    needed = missing_periods(there, moment)
    assert [(begins.year, begins.month) for begins, _ in needed] == months
    assert all(one[1] == other[0] for one, other in pairwise(needed))


async def test_turn_of_a_gateway_that_froze_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen gateway sends nothing that keeps its turn."""
    monkeypatch.setattr(partitions, "LOCK_IDLE_SECONDS", 1)
    monkeypatch.setattr(partitions, "LOCK_KEEPALIVE_SECONDS", 3600)
    async with opened(empty_database(tmp_path)) as database:

        async def is_free() -> bool:
            async with exclusive_access(database) as connection:
                return connection is not None

        async def freeze() -> None:
            async with exclusive_access(database):
                assert not await is_free()
                await eventually(is_free)

        with pytest.raises(StorageFault):
            await freeze()


async def test_turn_outlasts_the_idle_limit_while_the_gateway_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "LOCK_IDLE_SECONDS", 1)
    monkeypatch.setattr(partitions, "LOCK_KEEPALIVE_SECONDS", 0.1)
    async with opened(empty_database(tmp_path)) as database, exclusive_access(database) as connection:
        assert connection is not None
        await connection.execute("SELECT pg_sleep(2.5)")
        async with exclusive_access(database) as other:
            assert other is None


async def test_a_new_database_has_this_month_and_the_next_two(tmp_path: Path) -> None:
    """The migration makes them, without a gap, and what is past and what is later have their places."""
    url = empty_database(tmp_path)
    async with opened(url) as database:
        assert await make_months(database) == []
    assert names(url) == ["log_entries_past", named(0), named(1), named(2)]
    found = parts(url)
    assert all(one.ends == other.begins for one, other in pairwise(found))


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres, MDY"])
async def test_an_operators_way_to_write_dates_is_not_the_gateways(tmp_path: Path, style: str) -> None:
    """The bounds of months are read, and the next ones made, whatever the database's DateStyle."""
    url = empty_database(tmp_path)
    name = fetched(url, "SELECT current_database()")[0][0]
    run(url, f"ALTER DATABASE {name} SET datestyle = '{style}'")
    async with opened(url) as database:
        assert await make_months(database) == []


async def test_a_user_that_may_not_make_them_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody else owns the log, a line says what the server said; no traceback, and the upkeep goes on."""
    url = empty_database(tmp_path)
    async with opened(url):
        pass
    user, last = f"user_{token_hex(6)}", await asyncio.to_thread(names, url)
    await asyncio.to_thread(
        run,
        url,
        f"DROP TABLE {last[-1]}",
        f"CREATE ROLE {user} LOGIN PASSWORD 'open-sesame'",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}",
    )
    small = make_url(url).set(username=user, password="open-sesame").render_as_string(hide_password=False)
    try:
        database = PostgresDatabase(small)
        await make_in_upkeep(database)
        await database.close()
    finally:
        await asyncio.to_thread(run, url, f"DROP OWNED BY {user}", f"DROP ROLE {user}")
    assert "cannot create partitions of the log: PostgreSQL: InsufficientPrivilegeError 42501" in caplog.text
    assert "sesame" not in caplog.text


async def test_of_several_gateways_each_month_is_made_once(calendar: LiveGateway) -> None:
    """Four that see at once that months are missing make each of them once, and none fails."""
    url = calendar.database_url
    await asyncio.to_thread(with_months, url, -1, -1)
    async with opened(url) as one, opened(url) as two, opened(url) as three, opened(url) as four:
        made = await asyncio.gather(*(make_months(each) for each in (one, two, three, four)))
        assert sorted(name for each in made for name in each) == [named(0), named(1), named(2)]
        assert await make_months(one) == []


async def test_what_another_gateway_does_is_left_to_it(calendar: LiveGateway) -> None:
    """While one is about the months nobody else is, and nobody waits."""
    url = calendar.database_url
    await asyncio.to_thread(with_months, url, -1, -1)
    async with opened(url) as one, opened(url) as two:
        async with exclusive_access(one) as connection:
            assert connection is not None
            assert await make_months(two) == ()
        assert await make_months(two) == [named(0), named(1), named(2)]


def log(owner: Owner, agent: str) -> str:
    """Log something over HTTP and return the entry's id."""
    body = {"agent_id": agent, "action": "a", "status": "success", "context": {"n": 1}}
    answer = owner.http.post("/sdk/log", json=body, headers={"X-API-Key": owner.key})
    assert answer.status_code == 200, answer.text
    made: str = answer.json()["id"]
    return made


async def test_a_gateway_without_months_serves_and_is_put_in_order(
    calendar: LiveGateway, keeper: Owner
) -> None:
    """Its upkeep was not done for four months: entries are kept and listed, then have a part, and nothing is lost."""
    url, agent = calendar.database_url, keeper.agent()
    with_months(url, -6, -4)
    ids = [log(keeper, agent) for _ in range(3)]
    write_entries(calendar, keeper, [agent], 5, newest=this_month(-2))
    assert fetched(url, "SELECT count(*) FROM log_entries_default") == [(8,)]
    assert {entry["id"] for entry in keeper.entries(limit=100)} > set(ids)
    async with opened(url) as database:
        assert await make_months(database) == [named(-3)]
        assert await make_months(database) == []
    assert names(url)[-2:] == [named(-3), named(2)]
    assert fetched(url, f"SELECT count(*) FROM {named(-3)}") == [(8,)]
    assert fetched(url, "SELECT count(*) FROM log_entries_default") == [(0,)]
    assert fetched(url, "SELECT conname FROM pg_constraint WHERE conname = 'log_entries_bounds'") == []
    ids.append(log(keeper, agent))
    assert {entry["id"] for entry in keeper.entries(limit=100)} > set(ids)


async def test_months_that_were_missed_and_are_empty_are_one_part(calendar: LiveGateway) -> None:
    """Nobody needs them one by one."""
    with_months(calendar.database_url, -6, -4)
    async with opened(calendar.database_url) as database:
        assert await make_months(database) == [named(-3), named(0), named(1), named(2)]
    found = parts(calendar.database_url)
    assert all(one.ends == other.begins for one, other in pairwise(found))


async def test_an_entry_of_the_far_future_is_in_no_months_way(calendar: LiveGateway, keeper: Owner) -> None:
    """The server's clock was ahead for a moment: the entry stays where it is, and months go on."""
    url, agent = calendar.database_url, keeper.agent()
    with_months(url, 0, 1)
    write_entries(calendar, keeper, [agent], 1, newest=this_month(600))
    async with opened(url) as database:
        assert await make_months(database) == [named(2)]
    assert len(keeper.entries(limit=100)) == 1
    run(url, "DELETE FROM log_entries_default")


async def test_whoever_reads_without_end_is_waited_for_but_not_long(
    calendar: LiveGateway, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an export holds the log it is not put in order, all is as it was, and entries are taken."""
    url, agent = calendar.database_url, keeper.agent()
    with_months(url, -2, -1)
    log(keeper, agent)
    monkeypatch.setattr(partitions, "ATTACH_ATTEMPTS", 2)
    monkeypatch.setattr(partitions, "LOCK_PAUSE", 0)
    async with opened(url) as database:
        async with connected(url) as reading, reading.transaction():
            await reading.fetch("SELECT id FROM log_entries LIMIT 1")
            with pytest.raises(StorageFault):
                await make_months(database)
            await asyncio.to_thread(log, keeper, agent)
            bounds = "SELECT conname FROM pg_constraint WHERE conname = 'log_entries_bounds'"
            assert [tuple(row) for row in await reading.fetch(bounds)] == []
        assert await make_months(database) == [named(0)]
    assert len(keeper.entries(limit=100)) == 2
