"""What is load_idempotent of an attempt, beside an upkeep that removes what has expired."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlmodel import col
from support.gateway import LiveGateway, Owner

from toolgate_service.checks.repository import Attempt, load_idempotent, store_idempotent
from toolgate_service.context import AuthContext, load_auth_context
from toolgate_service.db.database import Database, now, open_database
from toolgate_service.jobs.batches import delete_where
from toolgate_service.logs.models import IdempotencyKey
from toolgate_service.organizations.repository import key_digest

pytestmark = pytest.mark.postgresql_only("SQLite has one writer at a time")

FIRST, SECOND = "0192f0c0-0000-7000-8000-000000000001", "0192f0c0-0000-7000-8000-000000000002"


@pytest.fixture
async def two(gateway: LiveGateway) -> AsyncIterator[tuple[Database, Database]]:
    """The gateway's database, as two processes see it."""
    first, second = open_database(gateway.database_url), open_database(gateway.database_url)
    await first.start()
    await second.start()
    yield first, second
    await first.close()
    await second.close()


async def standing_of(database: Database, owner: Owner) -> AuthContext:
    async with database.reading() as session:
        standing = await load_auth_context(session, key_digest(owner.key), "", "")
    assert standing is not None
    return standing


async def test_a_key_that_expired_is_used_again_while_it_is_removed(
    two: tuple[Database, Database], newcomer: Owner
) -> None:
    """The second use is load_idempotent, whatever the upkeep does between its two statements."""
    asking, removing = two
    standing, attempt = await standing_of(asking, newcomer), Attempt.of("again", b"{}")
    async with asking.writing() as session:
        long_ago = now(session) - timedelta(hours=1)
        await store_idempotent(session, standing, attempt, FIRST, long_ago)
    expired = (
        col(IdempotencyKey.organization_id) == newcomer.user["organization_id"],
        col(IdempotencyKey.expires_at) <= long_ago + timedelta(minutes=30),
    )
    async with asking.writing(standing.organization_id) as session:
        await store_idempotent(session, standing, attempt, SECOND, now(session))
        assert await delete_where(removing, 100, IdempotencyKey, *expired) == 0
    async with asking.reading() as session:
        assert await load_idempotent(session, standing, attempt, now(session)) == SECOND
