"""Rate limiters of several gateways in one process: each with its own connections to one database and one Redis."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import asyncpg

from support.databases import database_url
from support.waiting import eventually
from toolgate_service.core.ids import new_id
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.rate_limit.limiter import Rate, RateLimiter
from toolgate_service.rate_limit.postgres import PostgresRateLimiter
from toolgate_service.rate_limit.redis import RedisRateLimiter

#: an organization and a scope
Window: TypeAlias = tuple[str, str]


@asynccontextmanager
async def limiters(folder: Path, *urls: str) -> AsyncIterator[list[RedisRateLimiter]]:
    """Limiters on the database of a folder, each with the Redis of a URL."""
    async with AsyncExitStack() as stack:
        made = []
        for url in urls:
            database = PostgresDatabase(database_url(folder))
            stack.push_async_callback(database.close)
            made.append(RedisRateLimiter(url, PostgresRateLimiter(database)))
            stack.push_async_callback(made[-1].close)
            await made[-1].open()
        yield made


async def new_window(folder: Path) -> Window:
    """Return a window of a new organization."""
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


async def count_together(
    limiters: Sequence[RateLimiter], window: Window, limit: int, requests: int = 1
) -> list[Rate]:
    """Count requests that arrive at the same moment, at each limiter in turn."""
    some = [limiters[number % len(limiters)].count(*window, limit) for number in range(requests)]
    return list(await asyncio.gather(*some))


async def in_one_minute(folder: Path, work: Callable[[Window], Awaitable[Sequence[Rate]]]) -> Sequence[Rate]:
    """Return the rates that `work` counted for a new window within one minute; repeat it if the minute ended."""
    for _ in range(3):
        rates = await work(await new_window(folder))
        if len({rate.reset for rate in rates}) == 1:
            return rates
    raise AssertionError("a minute ended during every attempt")


def passed(rates: Sequence[Rate]) -> int:
    """Return how many requests may pass."""
    return sum(not rate.exceeded for rate in rates)


async def until_recovered(limiter: RedisRateLimiter) -> None:
    """Wait until a limiter uses its Redis."""

    async def is_used() -> bool:
        return not limiter.is_degraded

    await eventually(is_used)
