"""A cached decision is the decision that a fresh read would give, also while the rows change."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from support.databases import CHOICE, database_url, engine

from toolgate_service.auth_store import AuthStore
from toolgate_service.auth_store.postgres import PostgresAuthStore
from toolgate_service.auth_store.sqlite import SqliteAuthStore
from toolgate_service.context import AuthContext, ContextCache
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import BUILT_IN
from toolgate_service.db.database import Database
from toolgate_service.db.migrate import upgrade
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.db.sqlite import SqliteDatabase
from toolgate_service.migrations.metadata import METADATA
from toolgate_service.rate_limit.limiter import MemoryRateLimiter

AGENTS = ACTIONS = KEYS = 2
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
#: number of amounts that concurrent checks must have seen
AMOUNTS = 50


@dataclass(frozen=True)
class Tenant:
    """An organization with agents, each of which has a permission for each action, and keys."""

    organization_id: str
    agents: tuple[str, ...]
    digests: tuple[str, ...]


def changes(tenant: Tenant) -> Mapping[str, str]:
    """Return statements that change what a check reads, by name."""
    agent, digest, organization = tenant.agents[0], tenant.digests[0], tenant.organization_id
    return {
        "disable the agent": f"UPDATE agents SET status = 'inactive' WHERE id = '{agent}'",
        "enable the agent": f"UPDATE agents SET status = 'active' WHERE id = '{agent}'",
        "delete the permission": f"DELETE FROM permissions WHERE agent_id = '{agent}' AND action = 'a.0'",
        "create the permission": f"""
            INSERT INTO permissions (id, organization_id, environment, agent_id, action, requires_approval, amount_required,
                required_approvals, separation_of_duties, created_by, created_at)
            SELECT '{new_id()}', organization_id, environment, id, 'a.0', false, false, 1, false, created_by, created_at
            FROM agents WHERE id = '{agent}' AND true ON CONFLICT DO NOTHING
        """,
        "lower the amount": f"UPDATE permissions SET max_amount = '5' WHERE agent_id = '{agent}'",
        "raise the amount": f"UPDATE permissions SET max_amount = '500' WHERE agent_id = '{agent}'",
        "require approval": f"UPDATE permissions SET requires_approval = NOT requires_approval WHERE agent_id = '{agent}'",
        "revoke the key": f"UPDATE api_keys SET revoked_at = created_at WHERE digest = '{digest}'",
        "restore the key": f"UPDATE api_keys SET revoked_at = NULL WHERE digest = '{digest}'",
        "deactivate": f"UPDATE organizations SET is_active = false WHERE id = '{organization}'",
        "activate": f"UPDATE organizations SET is_active = true WHERE id = '{organization}'",
        "change the plan": f"UPDATE organizations SET plan = 'pro' WHERE id = '{organization}'",
    }  # fmt: skip


def open_store(folder: Path) -> tuple[AuthStore, Database]:
    url = database_url(folder)
    if CHOICE.server is not None:
        server = PostgresDatabase(url)
        return PostgresAuthStore(server, BUILT_IN), server
    file = SqliteDatabase(url)
    return SqliteAuthStore(file, MemoryRateLimiter(), BUILT_IN), file


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A connection of the operator, which knows of no cache."""
    made = engine(database_url(tmp_path))
    if CHOICE.server is None:
        async with made.begin() as connection:
            await connection.run_sync(upgrade)
    yield made
    await made.dispose()


@pytest.fixture
async def stores(tmp_path: Path, database: AsyncEngine) -> AsyncIterator[tuple[AuthStore, AuthStore]]:
    """Two gateways on one database."""
    first, second = open_store(tmp_path), open_store(tmp_path)
    for store, _ in (first, second):
        await store.open()
    yield first[0], second[0]
    for store, opened in (first, second):
        await store.close()
        await opened.close()


@pytest.fixture
async def tenant(database: AsyncEngine) -> Tenant:
    organization, user = new_id(), new_id()
    tenant = Tenant(
        organization,
        tuple(new_id() for _ in range(AGENTS)),
        tuple(f"digest {number} {organization}" for number in range(KEYS)),
    )
    scope = {"organization_id": organization, "environment": "production", "created_at": MOMENT}
    rows: list[tuple[str, Mapping[str, object]]] = [
        (
            "organizations",
            {"id": organization, "name": "o", "slug": organization, "plan": "enterprise", "is_active": True}
            | {"created_at": MOMENT},
        ),
        *(
            ("environments", {"organization_id": organization, "name": name, "log_bytes": 0})
            for name in ("production", "test")
        ),
        (
            "users",
            {
                "id": user,
                "organization_id": organization,
                "email": f"{user}@example.com",
                "password_hash": "x",
            }
            | {"role": "admin", "version": 0, "created_at": MOMENT},
        ),
        *(
            ("agents", {"id": agent, "name": "a", "status": "active", "created_by": user} | scope)
            for agent in tenant.agents
        ),
        *(
            (
                "permissions",
                {"id": new_id(), "agent_id": agent, "action": f"a.{number}", "requires_approval": False}
                | {"amount_required": False, "required_approvals": 1, "separation_of_duties": False}
                | {"created_by": user}
                | scope,
            )
            for agent in tenant.agents
            for number in range(ACTIONS)
        ),
        *(
            (
                "api_keys",
                {"id": new_id(), "agent_id": agent, "digest": digest, "ciphertext": b"c", "last_four": "abcd"}
                | scope,
            )
            for digest, agent in zip(tenant.digests, (None, tenant.agents[1]), strict=True)
        ),
    ]
    async with database.begin() as connection:
        for table, row in rows:
            await connection.execute(METADATA.tables[table].insert(), row)
    return tenant


async def execute(database: AsyncEngine, statement: str) -> None:
    async with database.begin() as connection:
        await connection.execute(text(statement))


async def check(store: AuthStore, digest: str, agent_id: str, action: str) -> AuthContext | None:
    """Read what a check reads, in the order of the endpoint; None if the key may not be used."""
    result = await store.authenticate(digest, "actions")
    if result is None or result[1] is None:
        return None
    return await store.load(digest, agent_id, action, epoch=result[0].epoch)


async def fresh(store: AuthStore, digest: str, agent_id: str, action: str) -> AuthContext | None:
    """Read the same without the cache."""
    context = await store.load(digest, agent_id, action)
    return context if context is not None and context.organization_is_active else None


@pytest.mark.parametrize("seed", range(4))
async def test_cached_and_fresh_decisions_are_the_same_after_every_change(
    stores: tuple[AuthStore, AuthStore],
    database: AsyncEngine,
    tenant: Tenant,
    seed: int,
) -> None:
    rng = random.Random(seed)
    statements = changes(tenant)
    done = Counter[str]()
    for _ in range(60):
        name = rng.choice(list(statements))
        await execute(database, statements[name])
        done[name] += 1
        for store in stores:
            question = (rng.choice(tenant.digests), rng.choice(tenant.agents), f"a.{rng.randrange(ACTIONS)}")
            assert await check(store, *question) == await fresh(store, *question), name
    assert len(done) > len(statements) // 2


async def test_check_that_begins_after_a_change_sees_it(
    stores: tuple[AuthStore, AuthStore], database: AsyncEngine, tenant: Tenant
) -> None:
    """Many checks run while amounts change: each sees the amount of its beginning, or a later one."""
    committed = [0]
    digest, agent = tenant.digests[0], tenant.agents[0]
    ends = time.monotonic() + 30
    seen = Counter[int]()

    def is_running() -> bool:
        return len(seen) <= AMOUNTS and time.monotonic() < ends

    async def change() -> None:
        amount = 0
        while is_running():
            amount += 1
            await execute(
                database, f"UPDATE permissions SET max_amount = '{amount}' WHERE agent_id = '{agent}'"
            )
            committed[0] = amount
            await asyncio.sleep(0.002)

    async def ask(store: AuthStore) -> None:
        while is_running():
            before = committed[0]
            context = await check(store, digest, agent, "a.0")
            assert context is not None
            amount = int(context.max_amount or 0)
            assert amount >= before
            seen[amount] += 1
            # Reads of SQLite never wait, and the changes would not begin.
            await asyncio.sleep(0)

    await asyncio.gather(change(), *(ask(store) for store in stores for _ in range(4)))
    assert len(seen) > AMOUNTS
    assert max(seen.values()) > 1


@pytest.mark.sqlite_only("PostgreSQL compares the epoch in the statement that counts the request")
async def test_requests_of_one_loop_iteration_share_an_epoch_read(
    stores: tuple[AuthStore, AuthStore], tenant: Tenant
) -> None:
    store = stores[0]
    assert isinstance(store, SqliteAuthStore)
    assert store._connection is not None
    await store.authenticate(tenant.digests[0], "actions")
    await asyncio.sleep(0)
    statements: list[str] = []
    store._connection.set_trace_callback(statements.append)
    for expected in (1, 2):
        await asyncio.gather(*(store.authenticate(tenant.digests[0], "actions") for _ in range(5)))
        assert len(statements) == expected


@pytest.mark.postgresql_only("one SQLite gateway counts in memory")
async def test_requests_of_a_cached_key_are_counted_exactly(
    stores: tuple[AuthStore, AuthStore], database: AsyncEngine, tenant: Tenant
) -> None:
    limit = 40
    await execute(
        database,
        f"UPDATE organizations SET requests_per_minute = {limit} WHERE id = '{tenant.organization_id}'",
    )
    # All of it in one minute of the server.
    async with database.connect() as connection:
        until = (
            await connection.execute(text("SELECT 60 - extract(second FROM clock_timestamp())::float8"))
        ).scalar_one()
    if until < 10:
        await asyncio.sleep(until + 0.1)
    for store in stores:
        assert await store.authenticate(tenant.digests[0], "actions") is not None
    results = await asyncio.gather(
        *(stores[number % 2].authenticate(tenant.digests[number % 2], "actions") for number in range(100))
    )
    passed = [result for result in results if result and result[1] and not result[1].exceeded]
    assert len(passed) == limit - 2
    assert sorted(result[1].remaining for result in passed if result[1]) == list(range(limit - 2))


def context(epoch: int | None, permission: str | None = "p", *, active: bool = True) -> AuthContext:
    return AuthContext(
        "k", None, "o", "production", int(active), "free", None, permission_id=permission, epoch=epoch
    )


def test_cache_keeps_the_newest_of_two_reads() -> None:
    cache = ContextCache()
    cache.store("d", "a", "x", context(2))
    cache.store("d", "a", "x", context(1))
    assert cache.find("d", "a", "x") == context(2)


def test_cache_stores_no_invented_names_and_no_inactive_organization() -> None:
    cache = ContextCache()
    cache.store("d", "a", "invented", context(1, permission=None))
    cache.store("d", "a", "x", context(1, active=False))
    cache.store("d", "a", "y", context(None))
    assert [cache.find("d", "a", name) for name in ("invented", "x", "y")] == [None] * 3


def test_full_cache_removes_what_was_stored_first() -> None:
    cache = ContextCache(size=2)
    for name in ("x", "y", "z"):
        cache.store("d", "a", name, context(1))
    assert [cache.find("d", "a", name) is None for name in ("x", "y", "z")] == [True, False, False]
