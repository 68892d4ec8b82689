"""The months of a log on PostgreSQL, looked at and changed past the gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg

from support.databases import finished
from toolgate_service.core.clock import month_start
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.logs.partitions import PAST, Partition, list_partitions, sql_month


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Connect, with moments in UTC."""
    connection = await asyncpg.connect(url, server_settings={"timezone": "UTC"})
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresDatabase]:
    """Open a database as a gateway does."""
    database = PostgresDatabase(url)
    await database.start()
    try:
        yield database
    finally:
        await database.close()


def run(url: str, *statements: str) -> None:
    """Run statements that return nothing."""

    async def work() -> None:
        async with connected(url) as connection:
            for statement in statements:
                await connection.execute(statement)

    finished(work())


def fetched(url: str, query: str) -> list[tuple[Any, ...]]:
    """Read rows."""

    async def work() -> list[tuple[Any, ...]]:
        async with connected(url) as connection:
            return [tuple(row) for row in await connection.fetch(query)]

    return finished(work())


def parts(url: str) -> list[Partition]:
    """Return the parts of the log, in order."""

    async def work() -> list[Partition]:
        async with connected(url) as connection:
            return list(await list_partitions(connection))

    return finished(work())


def names(url: str) -> list[str]:
    """Return the names of the log's parts, in order."""
    return [part.name for part in parts(url)]


def this_month(later: int = 0) -> datetime:
    """Return when this month began, or one so many months later."""
    return month_start(datetime.now(UTC), later)


def named(later: int) -> str:
    """Return the name of the part of a month, counted from this one."""
    return f"log_entries_{this_month(later):%Y_%m}"


def with_months(url: str, first: int, last: int) -> None:
    """Have exactly the months from one to another, counted from this one, and before them one empty part."""
    made = [
        f"CREATE TABLE {named(month)} PARTITION OF log_entries "
        f"FOR VALUES FROM ({sql_month(this_month(month))}) TO ({sql_month(this_month(month + 1))})"
        for month in range(first, last + 1)
    ]
    past = f"CREATE TABLE {PAST} PARTITION OF log_entries FOR VALUES FROM (MINVALUE) TO ({sql_month(this_month(first))})"
    run(url, *(f"DROP TABLE {name}" for name in names(url)), past, *made)
