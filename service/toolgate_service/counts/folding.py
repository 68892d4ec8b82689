"""Folding counts once their time is over: everybody's minutes into hours, an agent's and an action's hours into days."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Insert, bindparam, delete
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.counts.adding import KEY, added_by_request, minute_of
from toolgate_service.counts.models import ACTION, AGENT, ALL, COUNTED, DAY, HOUR, MINUTE, DayCount, LogCount
from toolgate_service.organizations.models import Environment
from toolgate_service.storage.base import Table
from toolgate_service.storage.database import Database, now
from toolgate_service.upkeep.batches import in_batches

#: what is folded: whose counts, and how long each was counted for
FINE = ((ALL, MINUTE), (AGENT, HOUR), (ACTION, HOUR))

_COUNTS = tuple(COUNTED.values())
_REMOVE = delete(LogCount).where(
    *(col(getattr(LogCount, column)) == bindparam(f"its_{column}") for column in KEY)
)


async def fold(database: Database, batch: int) -> int:
    """Fold all counts that are over, but for those of this hour and the one before, and return how many rows.

    Whoever reads both tables sees every entry once, before and after.
    """
    folded = 0
    for subject, span in FINE:
        for organization_id, environment in await _with_old(database, subject, span):

            async def work(
                session: AsyncSession,
                of: tuple[str, str, str, int] = (organization_id, environment, subject, span),
            ) -> int:
                return await _fold_some(session, batch, *of)

            folded += await in_batches(database, batch, work)
    return folded


async def count_request(
    session: AsyncSession, of: tuple[str, str], agent_id: str, action: str, created_at: datetime
) -> None:
    """Count an approval request, in the transaction that creates it; arguments as for `added_by_request`."""
    connection = await session.connection()
    rows = added_by_request(of, agent_id, action, created_at)
    await connection.execute(_adding_to(LogCount, connection.dialect.name), rows)


def first_kept(minute: int) -> int:
    """Return from which minute on nothing is folded: that of the hour before."""
    return minute - minute % HOUR - HOUR


async def _with_old(database: Database, subject: str, span: int) -> Sequence[tuple[str, str]]:
    oldest = (
        select(LogCount.starts)
        .where(
            LogCount.organization_id == Environment.organization_id,
            LogCount.environment == Environment.name,
            LogCount.subject == subject,
            LogCount.span == span,
        )
        .order_by(col(LogCount.starts))
        .limit(1)
        .correlate(Environment)
    )
    async with database.reading() as session:
        query = select(Environment.organization_id, Environment.name).where(
            oldest.scalar_subquery() < first_kept(minute_of(now(session)))
        )
        return (await session.exec(query)).all()


async def _fold_some(
    session: AsyncSession, batch: int, organization_id: str, environment: str, subject: str, span: int
) -> int:
    chosen = (
        select(LogCount)
        .where(
            LogCount.organization_id == organization_id,
            LogCount.environment == environment,
            LogCount.subject == subject,
            LogCount.span == span,
            LogCount.starts < first_kept(minute_of(now(session))),
        )
        .order_by(col(LogCount.starts), col(LogCount.name))
        .limit(batch)
        # Locked, and none that another folds: what two added up would be there twice.
        .with_for_update(skip_locked=True)
    )
    rows = (await session.exec(chosen)).all()
    if rows:
        connection = await session.connection()
        await connection.execute(
            _REMOVE, [{f"its_{column}": getattr(row, column) for column in KEY} for row in rows]
        )
        table = LogCount if subject == ALL else DayCount
        await connection.execute(_adding_to(table, connection.dialect.name), _folded(rows))
    return len(rows)


def _adding_to(table: type[LogCount | DayCount], dialect: str) -> Insert:
    declared = Table.metadata.tables[str(table.__tablename__)]
    insert = sqlite.insert(declared) if dialect == "sqlite" else postgresql.insert(declared)
    key = declared.primary_key.columns.keys()
    sums = {
        column.name: column + insert.excluded[column.name]
        for column in declared.columns
        if column.name not in key
    }
    return insert.on_conflict_do_update(index_elements=key, set_=sums)


def _folded(rows: Sequence[LogCount]) -> list[dict[str, object]]:
    """Add rows up to the coarser ones that they are part of, in the order of their keys."""
    sums: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * len(_COUNTS))
    first = rows[0]
    width = HOUR if first.subject == ALL else DAY
    for row in rows:
        total = sums[row.starts // width, row.name]
        for place, column in enumerate(_COUNTS):
            total[place] += getattr(row, column)
    tenant: dict[str, object] = {"organization_id": first.organization_id, "environment": first.environment}
    return [
        tenant
        | {"subject": first.subject, "name": name}
        | dict(zip(_COUNTS, counts, strict=True))
        | ({"span": HOUR, "starts": at * HOUR} if width == HOUR else {"day": at, "total": sum(counts)})
        for (at, name), counts in sorted(sums.items())
    ]
