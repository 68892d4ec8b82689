"""Rate windows that processes on one SQLite file share (decisions §7)."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from toolgate_service.core.errors import StorageFault
from toolgate_service.db.sqlite import SqliteDatabase
from toolgate_service.rate_limit.sqlite import SqliteRateLimiter

pytestmark = pytest.mark.sqlite_only("on PostgreSQL the database itself counts")


class Clock:
    """A clock that a test sets."""

    now = 600.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def processes(folder: Path, clock: Clock, how_many: int) -> AsyncIterator[list[SqliteRateLimiter]]:
    """Windows as so many processes have them, each with connections of its own."""
    async with AsyncExitStack() as stack:
        windows = []
        for _ in range(how_many):
            database = SqliteDatabase(f"sqlite:///{folder}/gateway.db")
            await database.start()
            stack.push_async_callback(database.close)
            windows.append(SqliteRateLimiter(database, clock))
            stack.push_async_callback(windows[-1].close)
            await windows[-1].open()
        yield windows


async def test_two_count_together(tmp_path: Path) -> None:
    """Whoever asks, the next request is the next one, and the one too many is refused by both."""
    async with processes(tmp_path, Clock(), 2) as (one, other):
        rates = [windows.count_now("o", "production/actions", 3) for windows in (one, other, one, other, one)]
        assert [rate.exceeded for rate in rates] == [False, False, False, True, True]
        assert [rate.remaining for rate in rates] == [2, 1, 0, 0, 0]
        assert {(rate.limit, rate.reset) for rate in rates} == {(3, 660)}
        assert not one.count_now("o", "test/actions", 3).exceeded
        assert not other.count_now("p", "production/actions", 3).exceeded
        # Raised within the minute, it holds from the next request on; lowered, likewise.
        assert one.count_now("o", "production/actions", 5).remaining == 1
        assert other.count_now("o", "production/actions", 4).exceeded


async def test_a_start_forgets_what_a_wrong_clock_counted(tmp_path: Path) -> None:
    """Set back by more than an hour, the clock opens no window by itself, and a start opens it; by less, none does."""
    clock = Clock()
    for ahead, exceeded in ((3540, True), (86400, False)):
        async with processes(tmp_path, clock, 1) as [one]:
            clock.now = 600.0 + ahead
            assert not one.count_now(str(ahead), "production/actions", 1).exceeded
            clock.now = 600.0
            assert one.count_now(str(ahead), "production/actions", 1).exceeded
        async with processes(tmp_path, clock, 1) as [one]:
            assert one.count_now(str(ahead), "production/actions", 1).exceeded == exceeded


async def test_looking_costs_nothing_and_says_what_counting_will(tmp_path: Path) -> None:
    """Before, at and beyond the limit, and in a new minute: the same as the next request is told."""
    clock = Clock()
    async with processes(tmp_path, clock, 2) as (one, other):
        for moment in (600.0, 600.0, 600.0, 660.0):
            clock.now = moment
            looks = {await other.peek("o", "production/actions", 2) for _ in range(3)}
            assert looks == {await one.count("o", "production/actions", 2)}


async def test_a_clock_set_back_opens_no_window(tmp_path: Path) -> None:
    """Stepping back over a minute's end and forward again gives nobody a second minute."""
    clock = Clock()
    async with processes(tmp_path, clock, 1) as (windows,):
        clock.now = 660.0
        windows.count_now("o", "production/actions", 1)
        for now in (659.9, 660.1):
            clock.now = now
            assert windows.count_now("o", "production/actions", 1).exceeded


async def test_who_begins_in_the_middle_of_a_minute_finds_its_count(tmp_path: Path) -> None:
    """A process that is started anew opens no window, and old minutes are forgotten."""
    clock = Clock()
    async with processes(tmp_path, clock, 1) as (windows,):
        windows.count_now("o", "production/actions", 1)
    async with processes(tmp_path, clock, 1) as (windows,):
        assert windows.count_now("o", "production/actions", 1).exceeded
    clock.now = 660.0
    async with processes(tmp_path, clock, 1):
        with closing(sqlite3.connect(tmp_path / "gateway.db.rates")) as file:
            assert file.execute("SELECT * FROM windows").fetchall() == []


async def test_a_file_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    """A machine that lost its power may leave anything; the gateway starts all the same, and counts."""
    (tmp_path / "gateway.db.rates").write_bytes(b"no database" * 1000)
    async with processes(tmp_path, Clock(), 2) as (one, other):
        assert not one.count_now("o", "production/actions", 1).exceeded
        assert other.count_now("o", "production/actions", 1).exceeded


async def test_what_cannot_be_counted_is_not_let_through(tmp_path: Path) -> None:
    """While another process holds the file for long, requests fail; then they are counted again."""
    async with processes(tmp_path, Clock(), 1) as (windows,):
        holder = sqlite3.connect(tmp_path / "gateway.db.rates", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFault):
            windows.count_now("o", "production/actions", 1)
        holder.execute("ROLLBACK")
        holder.close()
        assert not windows.count_now("o", "production/actions", 1).exceeded
