"""Export and deletion of decision records, and removal of their contexts."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import func, literal, tuple_
from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AppContext
from toolgate_service.core.plans import Plans
from toolgate_service.db.database import Database
from toolgate_service.db.models import ENVIRONMENTS, PRODUCTION, TEST, Id, Timestamp
from toolgate_service.db.pagination import Position
from toolgate_service.decisions.models import Decision
from toolgate_service.decisions.repository import Filters, in_order
from toolgate_service.decisions.schemas import DecisionView, file_header, serialize, to_view
from toolgate_service.jobs.batches import delete_where, in_batches
from toolgate_service.logs.repository import agent_names, tenants_with_old_rows
from toolgate_service.logs.schemas import Format
from toolgate_service.logs.service import TEST_DAYS, expired_tenants
from toolgate_service.transparency.chunks import announce_retention
from toolgate_service.transparency.leaves import CONTEXT, DECISION, SALT_DIGITS

#: maximum number of records that an export holds in memory
BATCH = 500


async def load_views(session: AsyncSession, decisions: Iterable[Decision]) -> Sequence[DecisionView]:
    """Return decisions for responses of the API, with the names of their agents."""
    found = list(decisions)
    ids = {one.agent_id for one in found if one.agent_id is not None}
    names = await agent_names(session, ids) if ids else {}
    return [to_view(one, names.get(one.agent_id or "")) for one in found]


async def export_decisions(
    context: AppContext, organization_id: str, environment: str, filters: Filters, form: Format
) -> AsyncGenerator[bytes]:
    """Yield the parts of a file that contains all matching decisions, newest first.

    All records are read from one snapshot of the database. At most `BATCH` records are in memory at a time.

    Raises:
        ApiError: 429, too many exports are running.
    """
    with context.exports.acquire(organization_id):
        yield file_header(form)
        if filters.match_nothing:
            return
        async with context.database.exporting() as session:
            after: Position | None = None
            while True:
                query = in_order(organization_id, environment, filters, after).limit(BATCH)
                found = (await session.exec(query)).all()
                if not found:
                    return
                yield serialize(await load_views(session, found), form)
                after = Position(found[-1].created_at, found[-1].id)


async def prune_decisions(database: Database, plans: Plans, batch: int, moment: datetime) -> int:
    """Delete decisions that are older than the retention period of log entries, and return the number of decisions."""
    removed = 0
    before = moment - timedelta(days=TEST_DAYS)
    for tenant in await tenants_with_old_rows(database, Decision, before, TEST):
        removed += await _prune(database, batch, tenant.id, TEST, before)
    async for organization_id, before in expired_tenants(database, Decision, plans, moment):
        removed += await _prune(database, batch, organization_id, PRODUCTION, before)
    return removed


async def _prune(
    database: Database, batch: int, organization_id: str, environment: str, before: datetime
) -> int:
    await announce_retention(database, DECISION, organization_id, environment, before)
    return await delete_where(
        database,
        batch,
        Decision,
        col(Decision.organization_id) == organization_id,
        col(Decision.environment) == environment,
        col(Decision.created_at) < before,
    )


class ContextRetention:
    """Removal of the contexts of old decisions.

    The object remembers the time up to which it has removed all contexts, so that only its first run reads all old
    records. An index could replace this memory, but would slow down the write that follows every check.

    Args:
        days: Number of days for which contexts are kept.
    """

    def __init__(self, days: int) -> None:
        self._age = timedelta(days=days)
        self._cleared_until: datetime | None = None

    async def clear(self, database: Database, batch: int, moment: datetime) -> int:
        """Remove the contexts of decisions that are older than `days` days at the time `moment`.

        Return the number of removed contexts.
        """
        before, cleared = moment - self._age, 0
        for environment in ENVIRONMENTS:
            for tenant in await tenants_with_old_rows(database, Decision, before, environment):
                cleared += await _clear(database, batch, tenant.id, environment, self._cleared_until, before)
        self._cleared_until = before
        return cleared


async def _clear(
    database: Database,
    batch: int,
    organization_id: str,
    environment: str,
    since: datetime | None,
    before: datetime,
) -> int:
    """Remove the contexts of an environment's decisions between `since` and `before`, and return their number.

    If `since` is None, the contexts of all decisions before `before` are removed.
    """
    key = tuple_(col(Decision.created_at), col(Decision.id))
    old = [
        col(Decision.organization_id) == organization_id,
        col(Decision.environment) == environment,
        col(Decision.created_at) < before,
        col(Decision.context).is_not(None),
    ]
    position = [] if since is None else [col(Decision.created_at) >= since]

    async def work(session: AsyncSession) -> int:
        nonlocal position
        oldest = select(Decision.created_at, Decision.id).where(*old, *position)
        oldest = oldest.order_by(col(Decision.created_at), col(Decision.id)).limit(batch)
        found = (await session.exec(oldest)).all()
        if not found:
            return 0
        last = tuple_(literal(found[-1][0], Timestamp()), literal(found[-1][1], Id()))
        connection = await session.connection()
        await connection.execute(
            update(Decision)
            .where(*old, *position, key <= last)
            .values(context=None, salt=func.substr(col(Decision.salt), 1, SALT_DIGITS))
        )
        # Continue after these records, because the search would otherwise read them again.
        position = [key > last]
        return len(found)

    async with database.reading() as session:
        if (await session.exec(select(Decision.id).where(*old, *position).limit(1))).first() is None:
            return 0
    await announce_retention(database, CONTEXT, organization_id, environment, before)
    return await in_batches(database, batch, work)
