"""Replicas' windows in one process: each with connections of its own to one database and one Redis."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg

from support.databases import database_url
from support.waiting import eventually
from toolgate_service.hotpath.rates import Rate, RateWindows, Window
from toolgate_service.hotpath.redis.till import till_of
from toolgate_service.hotpath.redis.windows import RedisWindows
from toolgate_service.ids import new_id
from toolgate_service.storage.postgres import PostgresDatabase


@asynccontextmanager
async def replicas(folder: Path, *urls: str) -> AsyncIterator[list[RedisWindows]]:
    """Windows on the database that a folder stands for, each with the Redis of a URL."""
    async with AsyncExitStack() as stack:
        windows = []
        for url in urls:
            database = PostgresDatabase(database_url(folder))
            stack.push_async_callback(database.close)
            windows.append(RedisWindows(till_of(url, database)))
            stack.push_async_callback(windows[-1].close)
            await windows[-1].open()
        yield windows


async def new_window(folder: Path) -> Window:
    """Return a window of an organization of its own."""
    organization_id = new_id()
    connection = await asyncpg.connect(database_url(folder))
    try:
        await connection.execute(
            "INSERT INTO organizations (id, name, slug, plan, is_active, created_at) "
            "VALUES ($1, 'Acme', $2, 'free', true, now())",
            organization_id,
            organization_id,
        )
    finally:
        await connection.close()
    return organization_id, "production/actions"


async def at_once(
    replicas: Sequence[RateWindows], window: Window, limit: int, requests: int = 1
) -> list[Rate]:
    """Count requests that arrive at all replicas in turn, all at the same moment."""
    some = [replicas[number % len(replicas)].count(*window, limit) for number in range(requests)]
    return list(await asyncio.gather(*some))


async def in_one_minute(folder: Path, work: Callable[[Window], Awaitable[Sequence[Rate]]]) -> Sequence[Rate]:
    """Return what a new window was told within one minute; if it turned, another."""
    for _ in range(3):
        rates = await work(await new_window(folder))
        if not turned(rates):
            return rates
    raise AssertionError("a minute turned during every attempt")


def turned(rates: Sequence[Rate]) -> bool:
    """Say whether a minute turned while they were counted: then they say nothing about one."""
    return len({rate.reset for rate in rates}) > 1


def so_far(rates: Sequence[Rate], expected: int) -> None:
    """See that so many were let through by now, if all of it was in one minute."""
    assert passed(rates) == expected or turned(rates)


def passed(rates: Sequence[Rate]) -> int:
    """Return how many were let through."""
    return sum(not rate.exceeded for rate in rates)


async def until_used(windows: RedisWindows) -> None:
    """Wait until a replica has found its Redis."""

    async def used() -> bool:
        return windows._till._server.in_use

    await eventually(used)
