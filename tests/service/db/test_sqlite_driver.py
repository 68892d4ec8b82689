"""Which statements of an SQLite file keep the event loop's thread, and that none keeps it for long."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from sqlalchemy import text
from sqlmodel import col, delete, select, update
from sqlmodel.ext.asyncio.session import AsyncSession
from support.waiting import eventually

from toolgate_service.accounts.models import LoginFailures
from toolgate_service.core.clock import utcnow
from toolgate_service.core.errors import StorageFault
from toolgate_service.db import sqlite_driver as sqlite_statements
from toolgate_service.db.sqlite import READERS, SqliteDatabase

pytestmark = pytest.mark.sqlite_only("about the threads that statements on a file run on")

#: takes a second or so, and no time to begin
LONG = "SELECT count(*) FROM (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {}) SELECT x FROM n)"
FOR_EVER = 10**12

#: what ran, and whether it did on the event loop's thread
Ran: TypeAlias = list[tuple[str, bool]]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    """A database of the newest schema."""
    database = SqliteDatabase(f"sqlite:///{tmp_path / 'gateway.db'}")
    await database.start()
    yield database
    await database.close()


async def raw(session: AsyncSession) -> sqlite3.Connection:
    connection = await (await session.connection()).get_raw_connection()
    driver: Any = connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def tracing(connection: sqlite3.Connection) -> Ran:
    """Note from now on what a connection runs."""
    ran: Ran = []
    home = threading.get_ident()

    def note(statement: str) -> None:
        if not statement.startswith("PRAGMA"):
            ran.append((statement.split(maxsplit=1)[0], threading.get_ident() == home))

    connection.set_trace_callback(note)
    return ran


def failed(subject: str) -> LoginFailures:
    return LoginFailures(subject=subject, last_failed_at=utcnow())


async def count(session: AsyncSession, many: int) -> int | None:
    return (await (await session.connection()).execute(text(LONG.format(many)))).scalar()


async def subjects(database: SqliteDatabase) -> list[str]:
    async with database.reading() as session:
        return sorted((await session.exec(select(LoginFailures.subject))).all())


async def test_only_the_commit_of_a_new_row_leaves_the_thread(database: SqliteDatabase) -> None:
    """What is read and added runs where it is asked for; the sync to disk is waited for on another thread."""
    async with database.writing() as session:
        ran = tracing(await raw(session))
        await session.exec(select(LoginFailures))
        session.add(failed("a"))
    assert ran == [("SELECT", True), ("INSERT", True), ("COMMIT", False)]
    assert await subjects(database) == ["a"]


async def test_what_may_change_many_rows_leaves_the_thread(database: SqliteDatabase) -> None:
    """A statement whose rows nobody has counted does not keep the loop's thread."""
    async with database.writing() as session:
        ran = tracing(await raw(session))
        await session.exec(update(LoginFailures).where(col(LoginFailures.failures) > 1).values(failures=0))
        await session.exec(delete(LoginFailures).where(col(LoginFailures.failures) > 1))
        connection = await session.connection()
        await connection.execute(
            text("INSERT INTO login_failures SELECT * FROM login_failures WHERE failures > 1")
        )
    assert ran == [("UPDATE", False), ("DELETE", False), ("INSERT", False), ("COMMIT", False)]


async def test_a_transaction_that_wrote_nothing_has_nothing_to_wait_for(database: SqliteDatabase) -> None:
    """It ends where it was, on the loop's thread."""
    async with database.writing() as session:
        ran = tracing(await raw(session))
        await session.exec(select(LoginFailures))
    assert ran == [("SELECT", True), ("COMMIT", True)]


async def test_a_long_read_goes_on_run_in_thread(database: SqliteDatabase) -> None:
    """It is broken off, begins anew on another thread, and what was written before it in the transaction stays."""
    async with database.writing() as session:
        ran = tracing(await raw(session))
        session.add(failed("before"))
        await session.flush()
        counted = await count(session, 10**6)
        session.add(failed("after"))
    assert counted == 10**6
    assert ran[1:3] == [("SELECT", True), ("SELECT", False)]
    assert await subjects(database) == ["after", "before"]


async def test_an_export_never_begins_on_the_loops_thread_in_earnest(database: SqliteDatabase) -> None:
    """A long read that is announced is broken off at the first look at the time."""
    async with database.exporting() as session:
        ran = tracing(await raw(session))
        assert await count(session, 10**4) == 10**4
    assert ran[:2] == [("SELECT", True), ("SELECT", False)]


async def test_the_loop_goes_on_during_a_long_read(database: SqliteDatabase) -> None:
    """Whoever waits for it can be heard: it is cancelled at once, and its connection is as good as new."""
    async with database.reading() as session:
        await session.connection()
        reading = asyncio.create_task(count(session, FOR_EVER))
        await asyncio.sleep(0)
        assert not reading.done()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    for _ in range(READERS + 1):
        assert await subjects(database) == []


async def test_a_read_that_is_cancelled_before_its_thread_began_ends(tmp_path: Path) -> None:
    """Nothing runs yet that could be interrupted; what begins afterwards is."""
    begin = threading.Event()

    def late(work: Callable[[], object]) -> object:
        begin.wait()
        return work()

    connection = sqlite3.connect(tmp_path / "late.db", check_same_thread=False)
    with closing(connection), ThreadPoolExecutor(1) as threads:
        statements = sqlite_statements.Statements(connection, threads)
        reading = asyncio.create_task(statements._run_in_thread(partial(late, partial(endless, connection))))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.sleep(0)
        begin.set()
        async with asyncio.timeout(20):
            with pytest.raises(asyncio.CancelledError):
                await reading


def endless(connection: sqlite3.Connection) -> object:
    return connection.execute(LONG.format(FOR_EVER)).fetchall()


async def test_a_cancelled_write_is_rolled_back(database: SqliteDatabase) -> None:
    """Whatever its thread was doing: nothing of the transaction stays, and the next writer has its turn."""

    async def write() -> None:
        async with database.writing() as session:
            session.add(failed("given up"))
            await session.flush()
            await count(session, FOR_EVER)

    writing = asyncio.create_task(write())
    await eventually(lambda: is_taken(database.path))
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    async with database.writing() as session:
        session.add(failed("kept"))
    assert await subjects(database) == ["kept"]


async def is_taken(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


async def is_waiting(database: SqliteDatabase) -> bool:
    return bool(database._threads._threads)


async def test_another_processs_lock_is_waited_for_run_in_thread(database: SqliteDatabase) -> None:
    """The loop goes on while another process writes; then it is this one's turn."""
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        async def write() -> None:
            async with database.writing() as session:
                session.add(failed("patient"))

        writing = asyncio.create_task(write())
        await eventually(lambda: is_waiting(database))
        assert await subjects(database) == []
        assert not writing.done()
        other.execute("COMMIT")
        await writing
    assert await subjects(database) == ["patient"]


async def test_a_lock_that_is_never_given_back_is_told(database: SqliteDatabase) -> None:
    """After the time that one process waits for another the transaction fails."""
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFault, match="another process"):
            async with database.writing(until=asyncio.get_running_loop().time() + 0.1):
                pass
    async with database.writing() as session:
        session.add(failed("later"))
    assert await subjects(database) == ["later"]
