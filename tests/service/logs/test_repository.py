"""The log a slice at a time: filtered by several columns, and looked through for a text."""

from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlmodel.ext.asyncio.session import AsyncSession
from support.gateway import PASSWORD
from support.inside import InsideGateway

from toolgate_service.core.errors import ApiError, FieldErrors
from toolgate_service.db.database import Database
from toolgate_service.db.pagination import Position
from toolgate_service.logs import repository
from toolgate_service.logs import service as text_search
from toolgate_service.logs.repository import Filters, LogPage, get_entry, list_around, list_page
from toolgate_service.logs.service import TextMatcher, search

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
COUNT = 60
STATUSES = ("success", "failed", "pending", "denied")
Step = Callable[[AsyncSession, Position | None], Coroutine[Any, Any, LogPage]]


class Log:
    """Sixty entries of one agent, oldest first: four statuses and three actions in turn."""

    def __init__(self, gateway: InsideGateway) -> None:
        self.gateway = gateway
        body = {"email": "a@example.test", "password": PASSWORD, "organization_name": "A"}
        owner = gateway.send("POST", "/auth/register", json=body).json()
        self.organization = owner["user"]["organization_id"]
        self.headers = {"Authorization": f"Bearer {owner['access_token']}"}
        self.key = gateway.send("GET", "/api/organization", headers=self.headers).json()["api_key"]
        agent = gateway.send("POST", "/api/agents", headers=self.headers, json={"name": "bot"})
        self.agent = agent.json()["id"]
        self.ids = [self.write(f"action.{n % 3}", STATUSES[n % 4], {"n": f"<{n}>"}) for n in range(COUNT)]

    def write(self, action: str, status: str, context: object) -> str:
        body = {"agent_id": self.agent, "action": action, "status": status, "context": context}
        answer = self.gateway.send("POST", "/sdk/log", json=body, headers={"X-API-Key": self.key})
        entry: str = answer.json()["id"]
        return entry

    def read(self, work: Callable[[AsyncSession], Coroutine[Any, Any, Any]]) -> Any:
        async def reading(database: Database) -> Any:
            async with database.reading() as session:
                return await work(session)

        return self.gateway.within(reading)

    def walk(self, step: Step) -> list[LogPage]:
        """Return every slice from the newest to the end."""
        found: list[LogPage] = []
        after = None
        while not found or after is not None:
            one: LogPage = self.read(lambda session, after=after: step(session, after))
            found.append(one)
            after = one.last
            assert len(found) <= 2 * COUNT
        return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A log in this process, whose bounds can be made small."""
    with InsideGateway(Path(tmp_path_factory.mktemp("slices"))) as gateway:
        yield Log(gateway)


def ids(slices: list[LogPage]) -> list[str]:
    return [line.id for one in slices for line in one.lines]


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"status": "denied"},
        {"agent_id": True, "status": "denied"},
        {"agent_id": True, "action": "action.1", "status": "failed"},
        {"action": "action.2", "status": "pending"},
        {
            "action": "action.1",
            "status": "failed",
            "begins": LONG_AGO,
            "ends": datetime(2100, 1, 1, tzinfo=UTC),
        },
    ],
)
@pytest.mark.parametrize("looked_through", [1, 7, 1000])
def test_slices_follow_each_other(log: Log, filters: dict[str, Any], looked_through: int) -> None:
    """Whatever is filtered and however little is looked through at once: each entry once, none left out."""
    asked = Filters(**filters | ({"agent_id": log.agent} if "agent_id" in filters else {}))
    with patch.object(repository, "SCAN_LIMIT", looked_through):
        slices = log.walk(
            lambda session, after: list_page(session, log.organization, "production", asked, after, 4)
        )
    expected = [
        entry
        for n, entry in enumerate(log.ids)
        if asked.status in {None, STATUSES[n % 4]} and asked.action in {None, f"action.{n % 3}"}
    ]
    assert ids(slices) == expected[::-1]
    assert all(len(one.lines) <= 4 for one in slices)


@pytest.mark.parametrize(
    "bounds",
    [
        {"MAX_ENTRIES": 7},
        {"MAX_CHARACTERS": 1},
        {"MAX_SECONDS": 0.0},
        {"_FIRST_BATCH": 2, "_LARGEST_BATCH": 3},
        {"_FIRST_BATCH": 60, "MAX_ENTRIES": 5},
    ],
)
@pytest.mark.parametrize("filters", [{}, {"status": "denied"}, {"action": "action.1", "status": "failed"}])
def test_a_search_goes_on_where_it_ended(log: Log, bounds: dict[str, Any], filters: dict[str, Any]) -> None:
    """After so many entries, so many characters, or so much time; together they find what one look would."""
    asked, wanted = Filters(begins=LONG_AGO, **filters), TextMatcher("5")
    with patch.multiple(text_search, **bounds), patch.object(repository, "SCAN_LIMIT", 20):
        slices = log.walk(
            lambda session, after: search(session, log.organization, "production", asked, wanted, after, 3)
        )
    matching = [
        (n, entry)
        for n, entry in enumerate(log.ids)
        if asked.status in {None, STATUSES[n % 4]} and asked.action in {None, f"action.{n % 3}"}
    ]
    assert ids(slices) == [entry for n, entry in matching if "5" in str(n)][::-1]
    # As many as match the filters were looked at, each once.
    assert sum(one.scanned or 0 for one in slices) == len(matching)
    assert len(slices) > 1


def test_a_search_looks_at_no_more_than_it_may(log: Log) -> None:
    """One slice ends after `MAX_ENTRIES`, says so, and where it came to."""
    asked = Filters(begins=LONG_AGO)
    with patch.object(text_search, "MAX_ENTRIES", 10):
        found: LogPage = log.read(
            lambda session: search(
                session, log.organization, "production", asked, TextMatcher("zzz"), None, 50
            )
        )
    assert (list(found.lines), found.scanned) == ([], 10)
    assert found.last is not None
    assert found.last.id == log.ids[-10]


def test_a_search_needs_a_time_range(log: Log) -> None:
    """Without its beginning it is refused, whoever asks."""
    with pytest.raises(FieldErrors) as refused:
        log.read(
            lambda session: search(
                session, log.organization, "production", Filters(), TextMatcher("x"), None, 50
            )
        )
    assert list(refused.value.detail) == ["from"]


def test_what_stands_around_an_entry(log: Log) -> None:
    """What the same agent did right before and right after, newest first; at the ends there is less."""

    async def neighbours(session: AsyncSession, entry: str) -> list[list[str]]:
        found = await list_around(session, await get_entry(session, log.organization, "production", entry), 3)
        return [[line.id for line in part] for part in found]

    def of(n: int) -> list[list[str]]:
        answer: list[list[str]] = log.read(lambda session: neighbours(session, log.ids[n]))
        return answer

    assert of(30) == [log.ids[31:34][::-1], log.ids[27:30][::-1]]
    assert of(0) == [log.ids[1:4][::-1], []]
    assert of(COUNT - 1) == [[], log.ids[-4:-1][::-1]]


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "x",
        "00000000-0000-0000-0000-000000000000",
        "00000000-0000-7000-8000-000000000000",
        "e677d21f-dbff-7fff-bfff-ffffffffffff",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
        "01a202b7-8a24-7f17-929a-19b62fee44cb",
    ],
)
def test_an_entry_that_is_not_there_is_not_found(log: Log, entry: str) -> None:
    """Whatever its id says of its time: at the beginning, at the end, and beyond all time."""
    with pytest.raises(ApiError) as refused:
        log.read(lambda session: get_entry(session, log.organization, "production", entry))
    assert refused.value.status_code == 404


def test_an_entry_is_found_though_clocks_differ(log: Log) -> None:
    """An id is made by the gateway's clock, its moment may be the database's: half a minute is bridged."""
    entry = log.ids[0]

    async def moved(database: Database) -> None:
        async with database.writing(log.organization) as session:
            one = await get_entry(session, log.organization, "production", entry)
            one.created_at -= timedelta(seconds=30)
            session.add(one)

    log.gateway.within(moved)
    found = log.read(lambda session: get_entry(session, log.organization, "production", entry))
    assert found.id == entry
