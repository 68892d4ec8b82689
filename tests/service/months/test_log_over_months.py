"""Lists, exports, single entries and idempotency keys do not notice where a month ends."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from support.bulk import write_entries
from support.databases import finished
from support.gateway import LiveGateway, Owner
from support.months import fetched, named, opened, this_month, with_months
from support.tables import execute, rows

from toolgate_service.db.pagination import Position
from toolgate_service.logs.repository import Filters, get_entry, list_newest_ids, list_page

pytestmark = pytest.mark.postgresql_only("SQLite keeps the log in one table")

#: entries on both sides of each of two ends of months
AROUND = 15


@pytest.fixture
def agent(calendar: LiveGateway, keeper: Owner) -> str:
    """An agent with entries on both sides of the ends of two months, and some of years ago."""
    with_months(calendar.database_url, -3, 2)
    made = keeper.agent()
    for later in (0, -1):
        newest = this_month(later) + timedelta(seconds=AROUND - 1)
        write_entries(calendar, keeper, [made], 2 * AROUND, newest=newest)
    write_entries(calendar, keeper, [made], 5, newest=this_month(-40))
    return made


def in_order(calendar: LiveGateway, keeper: Owner) -> list[str]:
    query = "SELECT id FROM log_entries WHERE organization_id = ? ORDER BY created_at DESC, id DESC"
    return [one for (one,) in rows(calendar, query, keeper.user["organization_id"])]


def test_pages_go_on_behind_the_end_of_a_month(calendar: LiveGateway, keeper: Owner, agent: str) -> None:
    """By cursor, page by page, every entry comes once and in order; so it does filtered, and in the console."""
    wanted = in_order(calendar, keeper)
    assert len(wanted) == 4 * AROUND + 5
    found, url = [], f"/api/logs?limit=7&agent_id={agent}"
    while url:
        page = keeper.http.get(url)
        found += [entry["id"] for entry in page.json()]
        url = page.links["next"]["url"] if "next" in page.links else ""
    assert found == wanted
    assert finished(leafed(calendar, keeper, Filters())) == wanted
    assert finished(leafed(calendar, keeper, Filters(agent_id=agent))) == wanted
    ends = this_month(-1)
    older = [one for one in wanted if one not in wanted[: 3 * AROUND]]
    assert finished(leafed(calendar, keeper, Filters(ends=ends))) == older
    assert finished(leafed(calendar, keeper, Filters(begins=ends))) == wanted[: 3 * AROUND]


async def leafed(calendar: LiveGateway, keeper: Owner, filters: Filters) -> list[str]:
    """Return the ids of all pages of the console's log."""
    found: list[str] = []
    after: Position | None = None
    async with opened(calendar.database_url) as database, database.reading() as session:
        while True:
            page = await list_page(session, keeper.user["organization_id"], "production", filters, after, 7)
            found += [line.id for line in page.lines]
            if page.last is None:
                return found
            after = page.last


@pytest.mark.parametrize("ends", [datetime(1, 1, 15, tzinfo=UTC), datetime(1, 12, 15, tzinfo=UTC)])
def test_before_the_second_year_there_is_nothing(
    calendar: LiveGateway, keeper: Owner, ends: datetime
) -> None:
    """Asked for what was before a day of the year 1, which no month comes a year before, the log is empty, and not broken."""
    assert finished(leafed(calendar, keeper, Filters(ends=ends))) == []


def test_news_are_of_this_month_and_the_last(calendar: LiveGateway, keeper: Owner, agent: str) -> None:
    """What an open page looks at twice a second are two months, however many there are."""
    assert agent

    async def looked() -> list[str]:
        async with opened(calendar.database_url) as database, database.reading() as session:
            return list(await list_newest_ids(session, keeper.user["organization_id"], "production"))

    assert finished(looked()) == in_order(calendar, keeper)[: 3 * AROUND]


def test_an_export_has_all_months(calendar: LiveGateway, keeper: Owner, agent: str) -> None:
    """From the newest entry to one of years ago, each once and in order."""
    assert agent
    lines = keeper.http.get("/api/logs/export").text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == in_order(calendar, keeper)


def test_a_key_is_remembered_when_a_month_ends(calendar: LiveGateway, keeper: Owner) -> None:
    """An entry of last month's last second, sent again in this month's first, is the same entry."""
    with_months(calendar.database_url, -1, 2)
    agent, organization = keeper.agent(), keeper.user["organization_id"]
    body = {"agent_id": agent, "action": "a", "status": "success"}
    headers = {"X-API-Key": keeper.key, "Idempotency-Key": "k"}
    first = keeper.http.post("/sdk/log", json=body, headers=headers)
    moment = this_month() - timedelta(seconds=1)
    for table in ("log_entries", "idempotency_keys"):
        query = f"UPDATE {table} SET created_at = ? WHERE organization_id = ?"
        execute(calendar, query, f"{moment:%Y-%m-%dT%H:%M:%SZ}", organization)
    assert fetched(calendar.database_url, f"SELECT count(*) FROM {named(-1)}") == [(1,)]
    again = keeper.http.post("/sdk/log", json=body, headers=headers)
    assert (again.status_code, again.content) == (200, first.content)
    assert len(keeper.entries(limit=100)) == 1


def test_an_entry_is_found_by_its_id_in_its_month(calendar: LiveGateway, keeper: Owner) -> None:
    """An id says when it was made, and so in which month the entry is: also just before the end of one."""
    with_months(calendar.database_url, -1, 2)
    agent, organization = keeper.agent(), keeper.user["organization_id"]
    moment = this_month() - timedelta(milliseconds=1)
    made = f"{int(moment.timestamp() * 1000):012x}"
    entry = f"{made[:8]}-{made[8:]}-7000-8000-{'0' * 12}"
    key = rows(calendar, "SELECT id FROM api_keys WHERE organization_id = ? LIMIT 1", organization)[0][0]
    execute(
        calendar,
        "INSERT INTO log_entries (id, organization_id, environment, agent_id, action, status, created_at, key_id) "
        "VALUES (?, ?, 'production', ?, 'a', 'success', ?, ?)",
        *(entry, organization, agent, f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}", key),
    )

    async def found() -> str:
        async with opened(calendar.database_url) as database, database.reading() as session:
            return (await get_entry(session, organization, "production", entry)).id

    assert finished(found()) == entry
