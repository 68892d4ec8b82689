"""Export and deletion of decision records."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime, timedelta

from sqlmodel import col
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AppContext
from toolgate_service.core.plans import PLAN_NAMES, UNLIMITED, Plans
from toolgate_service.db.database import Database
from toolgate_service.db.models import PRODUCTION, TEST
from toolgate_service.db.pagination import Position
from toolgate_service.decisions.models import Decision
from toolgate_service.decisions.repository import Filters, in_order
from toolgate_service.decisions.schemas import DecisionView, file_header, serialize, to_view
from toolgate_service.jobs.batches import delete_where
from toolgate_service.logs.repository import agent_names, tenants_with_old_rows
from toolgate_service.logs.schemas import Format
from toolgate_service.logs.service import TEST_DAYS, retention_days

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
    """Delete decisions that are older than the retention of log entries, and return their number."""
    removed = 0
    before = moment - timedelta(days=TEST_DAYS)
    for tenant in await tenants_with_old_rows(database, Decision, before, TEST):
        removed += await _prune(database, batch, tenant.id, TEST, before)
    for plan in PLAN_NAMES:
        days = plans[plan].log_retention_days
        if days == UNLIMITED:
            continue
        before = moment - timedelta(days=days)
        for tenant in await tenants_with_old_rows(database, Decision, before, PRODUCTION, plan):
            kept = retention_days(plans, *tenant[1:], moment)
            if kept != UNLIMITED:
                before_kept = moment - timedelta(days=kept)
                removed += await _prune(database, batch, tenant.id, PRODUCTION, before_kept)
    return removed


async def _prune(
    database: Database, batch: int, organization_id: str, environment: str, before: datetime
) -> int:
    return await delete_where(
        database,
        batch,
        Decision,
        col(Decision.organization_id) == organization_id,
        col(Decision.environment) == environment,
        col(Decision.created_at) < before,
    )
