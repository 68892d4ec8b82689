"""A log of the version before comes along into months: no entry is lost, and nobody waits for it."""

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection
from support.databases import empty_database, engine
from support.months import connected, named, names, opened, parts, this_month

from toolgate_service.db.migrate import configuration, upgrade
from toolgate_service.logs.partitions import make_months

pytestmark = pytest.mark.postgresql_only("SQLite keeps the log in one table")

WORLD = """
SET session_replication_role = replica;
INSERT INTO agents (id, organization_id, environment, name, status, created_by, created_at)
SELECT md5('a' || n)::uuid, md5('o' || n)::uuid, 'production', 'bot', 'active', md5('u')::uuid, now()
FROM generate_series(0, 2) AS n;
INSERT INTO log_entries (id, organization_id, environment, agent_id, action, status, context, ip_address, address_seen,
                         created_at, occurred_at, decision_id, approval_id, call_id, run_id, key_id)
SELECT gen_random_uuid(), md5('o' || n % 3)::uuid, 'production', md5('a' || n % 3)::uuid, 'a.' || n % 5, 'success',
       repeat(md5(n::text), {wide}), '192.0.2.1', '192.0.2.2', now() - n * interval '1 minute', now(), 'd', 'p', 'c', 'r',
       md5('k')::uuid
FROM generate_series(0, {rows} - 1) AS n
"""
#: all columns of all entries, whatever the order
# Without the column that a later migration adds.
DIGEST = "SELECT count(*), md5(string_agg((to_jsonb(e) - 'salt')::text, ';' ORDER BY id)) FROM log_entries e"


@pytest.fixture
async def before(tmp_path: Path) -> str:
    """A database of the schema before, empty."""
    url = empty_database(tmp_path)
    await revised(url, lambda sync: command.upgrade(configuration(sync), "0014"))
    return url


async def revised(url: str, work: Any) -> None:
    made = engine(url)
    async with made.begin() as connection:
        await connection.run_sync(work)
    await made.dispose()


async def digest(url: str) -> tuple[int, str]:
    async with connected(url) as connection:
        return tuple(await connection.fetchrow(DIGEST))


async def test_a_small_log_has_its_months_at_once(before: str) -> None:
    """What there is is one part to the end of the next month; the way back keeps every entry too."""
    async with connected(before) as connection:
        await connection.execute(WORLD.format(wide=1, rows=500))
    there = await digest(before)
    await revised(before, upgrade)
    assert await digest(before) == there
    assert names(before) == ["log_entries_past", named(2)]
    assert parts(before)[0].ends == this_month(2)

    def down(connection: Connection) -> None:
        command.downgrade(configuration(connection), "0014")

    await revised(before, down)
    assert await digest(before) == there


async def test_a_large_log_is_put_in_order_by_the_upkeep(before: str) -> None:
    """It is not read by the migration; afterwards it is one part, with bounds that the server knows to be true."""
    async with connected(before) as connection:
        await connection.execute(WORLD.format(wide=58, rows=9_000))
    there = await digest(before)
    assert there[0] == 9_000
    await revised(before, upgrade)
    assert await digest(before) == there
    assert names(before) == []
    async with opened(before) as database:
        assert await make_months(database) == ["log_entries_past"]
        assert await make_months(database) == []
    assert names(before) == ["log_entries_past", named(2)]
    assert await digest(before) == there
    async with connected(before) as connection:
        assert await connection.fetchval("SELECT count(*) FROM log_entries_default") == 0
