"""Database queries for the decision log.

The queries list pages, get one record, stream records, and insert a record in the transaction of its check. Only the
agent, the run and the outcome are indexed, because each index slows down the write that follows every check.

With other filters, matching records can be rare. The query for a page then reads at most `SCAN_LIMIT` records of the
most selective index, and the caller requests the next page from the position at which the query stopped.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import ColumnElement, literal, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.core.errors import not_found
from toolgate_service.core.ids import is_id, time_of_id
from toolgate_service.core.schemas import is_action, is_reference
from toolgate_service.db.database import Database
from toolgate_service.db.models import Id, Timestamp
from toolgate_service.db.pagination import COUNTED, Page, Position, newest_first
from toolgate_service.decisions.models import ALLOWED, Decision
from toolgate_service.decisions.recorder import COLUMNS, DecisionRecord, build_row, decision_leaf
from toolgate_service.logs.repository import fetch_rows
from toolgate_service.organizations.models import Epoch
from toolgate_service.transparency.chunks import add_leaf

#: maximum number of index entries that the query for a page reads
SCAN_LIMIT = COUNTED
#: number of records that a stream reads in one transaction
STREAM_BATCH = 500


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions for the decisions of an environment. None matches every value."""

    agent_id: str | None = None
    run_id: str | None = None
    outcome: str | None = None
    action: str | None = None
    reason_code: str | None = None
    rule_id: str | None = None
    #: start (inclusive) and end (exclusive) of the time range
    begins: datetime | None = None
    ends: datetime | None = None

    @property
    def match_nothing(self) -> bool:
        """True if no record can match, because a value has an invalid format."""
        ids, references = (self.agent_id, self.rule_id), (self.run_id, self.reason_code)
        return (
            any(one is not None and not is_id(one) for one in ids)
            or any(one is not None and not is_reference(one) for one in references)
            or (self.action is not None and not is_action(self.action))
        )

    @property
    def narrowest(self) -> "Filters":
        """The filters that one index can apply: the most selective indexed column, and the time range."""
        times = Filters(begins=self.begins, ends=self.ends)
        if self.run_id is not None:
            return replace(times, run_id=self.run_id)
        if self.agent_id is not None:
            return replace(times, agent_id=self.agent_id)
        # The index of outcomes does not contain allowed checks, which are the most frequent ones.
        return times if self.outcome in {None, ALLOWED} else replace(times, outcome=self.outcome)


class DecisionPage(NamedTuple):
    """Page of a list of decisions.

    Attributes:
        total: Number of matching records, or `COUNTED + 1` if there are more; None if it is unknown, because only a
            part of the records was read.
        last: Position after which the next page starts; None at the end of the log.
    """

    rows: Sequence[Decision]
    total: int | None
    last: Position | None


def matching(organization_id: str, environment: str, filters: Filters) -> SelectOfScalar[Decision]:
    """Return the query for the records that match the filters, in no particular order."""
    query = select(Decision).where(
        Decision.organization_id == organization_id, Decision.environment == environment
    )
    query = query.where(*_conditions(filters))
    if filters.begins is not None:
        query = query.where(Decision.created_at >= filters.begins)
    if filters.ends is not None:
        query = query.where(Decision.created_at < filters.ends)
    return query


def _conditions(filters: Filters) -> Iterable[ColumnElement[bool]]:
    narrowest = filters.narrowest
    for name in ("run_id", "agent_id", "outcome", "action", "reason_code", "rule_id"):
        value, column = getattr(filters, name), col(getattr(Decision, name))
        if value is None:
            continue
        if getattr(narrowest, name) is None:
            # Write the condition as an expression, for which databases cannot use an index, because they might
            # otherwise choose a less selective index.
            yield func.coalesce(column, column) == value
            continue
        yield column == value
        if name == "outcome":
            # Databases use the partial index only if the statement contains its condition.
            yield column != literal(ALLOWED, literal_execute=True)


def in_order(
    organization_id: str,
    environment: str,
    filters: Filters,
    after: Position | None,
    floor: Position | None = None,
) -> SelectOfScalar[Decision]:
    """Return the query for the matching records, newest first.

    If the positions are given, the records are older than `after`, and not older than `floor`. `after` then replaces a
    later `filters.ends`, and `floor` replaces `filters.begins`: with both conditions, SQLite would first seek to the
    time and then scan up to the position.
    """
    if after is not None and filters.ends is not None and after.created_at < filters.ends:
        filters = replace(filters, ends=None)
    if floor is not None:
        filters = replace(filters, begins=None)
    query = newest_first(matching(organization_id, environment, filters), Decision, after)
    if floor is None:
        return query
    lowest = tuple_(literal(floor.created_at, Timestamp()), literal(floor.id, Id()))
    return query.where(tuple_(col(Decision.created_at), col(Decision.id)) >= lowest)


async def list_page(
    session: AsyncSession, organization_id: str, environment: str, filters: Filters, page: Page
) -> DecisionPage:
    """Return a page of decisions, newest first."""
    if filters.match_nothing:
        return DecisionPage((), 0, None)
    scope = (organization_id, environment, filters)
    top = await _find_floor(session, *scope, None)
    total = None if top is not None else await _count(session, *scope)
    floor = top if page.after is None else await _find_floor(session, *scope, page.after)
    query = in_order(*scope, page.after, floor).offset(page.offset)
    limit = page.limit or SCAN_LIMIT
    found = (await session.exec(query.limit(limit + 1))).all()
    rows = found[:limit]
    if len(found) > limit:
        return DecisionPage(rows, total, Position(rows[-1].created_at, rows[-1].id))
    return DecisionPage(rows, total, floor)


async def _count(session: AsyncSession, organization_id: str, environment: str, filters: Filters) -> int:
    """Return the number of matching records, or `COUNTED + 1` if there are more."""
    bounded = matching(organization_id, environment, filters).with_only_columns(
        literal(1), maintain_column_froms=True
    )
    counted = select(func.count()).select_from(bounded.limit(COUNTED + 1).subquery())
    return (await session.exec(counted)).one()


async def _find_floor(
    session: AsyncSession, organization_id: str, environment: str, filters: Filters, after: Position | None
) -> Position | None:
    """Return the position of the oldest record that the query for a page may read; None if there is no such limit."""
    narrowest = filters.narrowest
    if narrowest == filters:
        return None
    query = in_order(organization_id, environment, narrowest, after)
    positions = query.with_only_columns(col(Decision.created_at), col(Decision.id))
    found = await fetch_rows(session, positions.offset(SCAN_LIMIT - 1).limit(1))
    return Position(*found[0]) if found else None


async def get_decision(
    session: AsyncSession, organization_id: str, environment: str, decision_id: str
) -> Decision:
    """Return the record with this id.

    Raises:
        ApiError: 404, the environment has no such record.
    """
    decision = await find_decision(session, organization_id, environment, decision_id)
    if decision is None:
        raise not_found("Decision")
    return decision


async def find_decision(
    session: AsyncSession, organization_id: str, environment: str, decision_id: str
) -> Decision | None:
    """Return the record with this id, or None."""
    created = time_of_id(decision_id)
    if created is None:
        return None
    query = select(Decision).where(
        Decision.organization_id == organization_id,
        Decision.environment == environment,
        Decision.created_at == created,
        Decision.id == decision_id,
    )
    return (await session.exec(query)).first()


class RecordedDecision(NamedTuple):
    """Columns of a record that a replay of a policy needs. The attributes are those of `Decision`."""

    created_at: datetime
    id: str
    agent_id: str | None
    action: str
    run_id: str | None
    context_digest: str
    context: str | None
    rule_id: str | None
    outcome: str
    reason_code: str


async def stream_decisions(
    database: Database,
    organization_id: str,
    environment: str,
    begins: datetime,
    ends: datetime,
    *,
    agent_id: str | None = None,
    batch: int = STREAM_BATCH,
) -> AsyncIterator[Sequence[RecordedDecision]]:
    """Yield the records from `begins` (inclusive) to `ends` (exclusive) in batches, oldest first.

    Each batch is read in its own transaction, so that no snapshot of the database stays open while the caller works.
    """
    key = tuple_(col(Decision.created_at), col(Decision.id))
    columns = [col(getattr(Decision, name)) for name in RecordedDecision._fields]
    query = sqlalchemy.select(*columns).where(
        col(Decision.organization_id) == organization_id,
        col(Decision.environment) == environment,
        col(Decision.created_at) < ends,
    )
    if agent_id is not None:
        query = query.where(col(Decision.agent_id) == agent_id)
    query = query.order_by(col(Decision.created_at), col(Decision.id)).limit(batch)
    position = col(Decision.created_at) >= begins
    while True:
        async with database.reading() as session:
            found = [RecordedDecision._make(row) for row in await fetch_rows(session, query.where(position))]
        if found:
            yield found
        if len(found) < batch:
            return
        last = found[-1]
        position = key > tuple_(literal(last.created_at, Timestamp()), literal(last.id, Id()))


async def insert_decision(session: AsyncSession, record: DecisionRecord, *, stores_context: bool) -> bool:
    """Write the record of a check in the transaction of the check, and return whether it is new.

    The transaction holds the organization's lock, so the environment still has the epoch (version) with which the check
    was decided. For a retry with the same idempotency key, the record of the first decision already exists and stays
    unchanged.
    """
    values: dict[str, Any] = dict(zip(COLUMNS, build_row(record, stores_context=stores_context), strict=True))
    values["policy_revision"] = (
        select(Epoch.epoch)
        .where(
            Epoch.organization_id == record.auth.organization_id, Epoch.environment == record.auth.environment
        )
        .scalar_subquery()
    )
    connection = await session.connection()
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = (
        insert(Decision).values(values).on_conflict_do_nothing().returning(col(Decision.policy_revision))
    )
    inserted = (await connection.execute(statement)).fetchall()
    for (values["policy_revision"],) in inserted:
        await add_leaf(session, decision_leaf(tuple(values[name] for name in COLUMNS)))
    return bool(inserted)
