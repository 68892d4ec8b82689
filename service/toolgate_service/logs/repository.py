"""Database queries for log entries: filtered pages, single entries, neighbors of an entry, expired entries.

The time for a page of the console depends only on the number of its rows and not on the length of the log, because
matching entries are not counted. With one filter, the page is a range of one index. With several filters, matching
entries can be rare: the query then reads at most `SCAN_LIMIT` entries of the most selective index, and the caller
requests the next page from the position at which the query stopped.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Executable, Select, literal, tuple_
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import Select as TypedSelect
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.core import strict_json
from toolgate_service.core.clock import month_start
from toolgate_service.core.errors import not_found
from toolgate_service.core.ids import is_id, time_of_id
from toolgate_service.core.schemas import is_action
from toolgate_service.db.database import Database, now
from toolgate_service.db.models import Id, PartitionHint, Timestamp
from toolgate_service.db.pagination import Found, Page, Position, find_page, newest_first
from toolgate_service.logs.counts import minute_of
from toolgate_service.logs.models import ALL, HOUR, LogCount, LogEntry
from toolgate_service.logs.schemas import LogEntryView
from toolgate_service.organizations.models import Organization

#: maximum number of index entries that the query for a page with several filters reads
SCAN_LIMIT = 10_000
#: number of newest ids that `list_newest_ids` returns
_NEWEST = 100
#: numbers of months to which a query on PostgreSQL is limited in its first attempts, because each month is a separate
#: partition; if all attempts find too few entries, the query searches the whole log
RECENT_MONTHS = (1, 12)
#: maximum number of organizations that one statement reads
ORGANIZATIONS_PER_QUERY = 1_000
#: maximum number of characters of a context that are loaded for a list
EXCERPT_LENGTH = 2_000

#: maximum differences between the creation time that an entry's id contains and the column `created_at`: the first
#: value applies if both were read from the same clock, the second if one was read from the clock of the gateway and the
#: other from the clock of the database
_ID_TIME_TOLERANCES = (timedelta(seconds=2), timedelta(minutes=1))

#: function that executes a query with the given filters and returns the rows
Query: TypeAlias = Callable[["Filters"], Awaitable[Sequence[Sequence[Any]]]]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions for the log entries of an environment. None matches every value."""

    agent_id: str | None = None
    status: str | None = None
    action: str | None = None
    #: start (inclusive) and end (exclusive) of the time range
    begins: datetime | None = None
    ends: datetime | None = None

    @property
    def match_nothing(self) -> bool:
        """True if no entry can match, because the agent id or the action has an invalid format."""
        return (self.agent_id is not None and not is_id(self.agent_id)) or (
            self.action is not None and not is_action(self.action)
        )


@dataclass(frozen=True, slots=True)
class LogLine:
    """Log entry in a list.

    Attributes:
        excerpt: First `EXCERPT_LENGTH` characters of the context's canonical JSON; None if there is no context.
        size: Number of characters of the complete context.
    """

    id: str
    agent_id: str
    agent_name: str
    action: str
    status: str
    created_at: datetime
    run_id: str | None
    excerpt: str | None
    size: int

    @property
    def position(self) -> Position:
        """Position of the entry in the log, as needed for pagination."""
        return Position(self.created_at, self.id)


@dataclass(frozen=True, slots=True)
class LogPage:
    """Page of a list of log entries.

    Attributes:
        lines: Matching entries, newest first.
        last: Position after which the next page starts; None at the end of the log.
        scanned: Number of entries that were read; None if only matching entries were read.
    """

    lines: Sequence[LogLine]
    last: Position | None = None
    scanned: int | None = None


def matching(organization_id: str, environment: str, filters: Filters) -> SelectOfScalar[LogEntry]:
    """Return the query for the entries that match the filters. It does not sort the entries."""
    query = select(LogEntry).where(
        LogEntry.organization_id == organization_id, LogEntry.environment == environment
    )
    # The columns are sorted by selectivity. Compare the first column that has a filter directly, so that SQLite uses
    # its index. Write the comparisons of the other columns as expressions, so that SQLite cannot use a less selective
    # index for them.
    wanted = (
        (LogEntry.agent_id, filters.agent_id),
        (LogEntry.action, filters.action),
        (LogEntry.status, filters.status),
    )
    given = [(col(column), value) for column, value in wanted if value is not None]
    for column, value in given[:1]:
        query = query.where(column == value)
    for column, value in given[1:]:
        query = query.where(column.concat("") == value)
    if filters.begins is not None:
        query = query.where(LogEntry.created_at >= filters.begins)
    if filters.ends is not None:
        query = query.where(LogEntry.created_at < filters.ends)
    return query


def in_order(
    organization_id: str,
    environment: str,
    filters: Filters,
    after: Position | None,
    floor: Position | None = None,
) -> SelectOfScalar[LogEntry]:
    """Return the query for the entries that match the filters, newest first.

    The entries are older than the position `after`, and not older than the position `floor`; None means no limit. A
    time filter that one of these positions makes redundant is omitted: with both conditions, SQLite would seek to the
    time of the filter, and then scan all entries up to the position.
    """
    if after is not None and filters.ends is not None and after.created_at < filters.ends:
        filters = replace(filters, ends=None)
    if floor is not None:
        filters = replace(filters, begins=None)
    query = newest_first(matching(organization_id, environment, filters), LogEntry, after)
    moment = col(LogEntry.created_at)
    if after is not None:
        query = query.where(PartitionHint(moment <= literal(after.created_at, Timestamp())))
    if floor is None:
        return query
    lowest = tuple_(literal(floor.created_at, Timestamp()), literal(floor.id, Id()))
    query = query.where(tuple_(moment, col(LogEntry.id)) >= lowest)
    return query.where(PartitionHint(moment >= literal(floor.created_at, Timestamp())))


async def list_entries(
    session: AsyncSession, caller: Caller, environment: str, filters: Filters, page: Page
) -> Found[LogEntryView]:
    """Return a page of log entries for the API, newest first, with the total number of matching entries.

    Entries of deleted agents are included.
    """
    if filters.match_nothing:
        return Found([], 0, None)
    query = matching(caller.organization_id, environment, filters)
    found = await find_page(session, query, LogEntry, page)
    names = await agent_names(session, {entry.agent_id for entry in found.rows})
    views = [_view(entry, names[entry.agent_id]) for entry in found.rows]
    return Found(views, found.total, found.last)


async def list_page(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    filters: Filters,
    after: Position | None,
    limit: int,
) -> LogPage:
    """Return a page of at most `limit` log entries that are older than the position `after`, newest first."""
    if filters.match_nothing:
        return LogPage(())
    floor = await find_floor(session, organization_id, environment, filters, after)

    async def query(filters: Filters) -> Sequence[Sequence[Any]]:
        statement = _select_lines(in_order(organization_id, environment, filters, after, floor))
        return await fetch_rows(session, statement.limit(limit + 1))

    found = await query(filters) if floor else await _recent_first(session, filters, after, limit + 1, query)
    lines = await to_lines(session, found[:limit])
    if len(found) > limit:
        return LogPage(lines, lines[-1].position)
    return LogPage(lines, floor, None if floor is None else SCAN_LIMIT)


async def list_around(
    session: AsyncSession, entry: LogEntry, count: int
) -> tuple[Sequence[LogLine], Sequence[LogLine]]:
    """Return the entries of the same agent directly after and directly before a log entry.

    The first list contains at most `count` later entries, the second list at most `count` earlier entries. Each list is
    sorted newest first.
    """
    environment = (entry.organization_id, entry.environment)
    filters, position = Filters(agent_id=entry.agent_id), Position(entry.created_at, entry.id)

    async def query(filters: Filters) -> Sequence[Sequence[Any]]:
        return await fetch_rows(
            session, _select_lines(in_order(*environment, filters, position)).limit(count)
        )

    before = await _recent_first(session, filters, position, count, query)
    moment = literal(entry.created_at, Timestamp())
    own = tuple_(moment, literal(entry.id, Id()))
    later = matching(*environment, filters).where(tuple_(col(LogEntry.created_at), col(LogEntry.id)) > own)
    later = later.where(PartitionHint(col(LogEntry.created_at) >= moment))
    later = later.order_by(col(LogEntry.created_at), col(LogEntry.id))
    after = await fetch_rows(session, _select_lines(later).limit(count))
    return await to_lines(session, after[::-1]), await to_lines(session, before)


async def list_newest_ids(session: AsyncSession, organization_id: str, environment: str) -> Sequence[str]:
    """Return the ids of the newest entries. The caller compares them with earlier ids to detect new entries.

    The newest id alone is not sufficient: if several gateways write, an entry with an earlier time may be committed
    after the newest entry.
    """
    recent = Filters(begins=month_start(now(session), -1))
    query = in_order(organization_id, environment, recent, None)
    return [row[0] for row in await fetch_rows(session, query.with_only_columns(_ID).limit(_NEWEST))]


async def get_entry(session: AsyncSession, organization_id: str, environment: str, entry_id: str) -> LogEntry:
    """Return the log entry with this id.

    There is no index of ids, because it would slow down every write. Instead, the query searches the primary key, which
    is ordered by time, around the time that the id contains.

    Raises:
        ApiError: 404, the entry does not exist in this environment.
    """
    created = time_of_id(entry_id)
    if created is None:
        raise not_found("Log entry")
    for tolerance in _ID_TIME_TOLERANCES:
        query = select(LogEntry).where(
            LogEntry.organization_id == organization_id,
            LogEntry.environment == environment,
            col(LogEntry.created_at).between(created - tolerance, created + tolerance),
            LogEntry.id == entry_id,
        )
        found = (await session.exec(query)).first()
        if found is not None:
            return found
    raise not_found("Log entry")


async def find_floor(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    filters: Filters,
    after: Position | None,
) -> Position | None:
    """Return the position of the last entry that the query for a page may read.

    The page starts after the position `after`. A query that stops at the returned position reads at most `SCAN_LIMIT`
    index entries. The result is None if the query may read to the end of the log.
    """
    narrowest = _narrowest(filters)
    if narrowest == filters:
        return None

    async def query(filters: Filters) -> Sequence[Sequence[Any]]:
        statement = in_order(organization_id, environment, filters, after)
        positions = statement.with_only_columns(col(LogEntry.created_at), _ID)
        return await fetch_rows(session, positions.offset(SCAN_LIMIT - 1).limit(1))

    found = await _recent_first(session, narrowest, after, 1, query)
    return Position(*found[0]) if found else None


async def agent_names(session: AsyncSession, ids: Iterable[str]) -> dict[str, str]:
    """Return the names of agents by id, including deleted agents.

    The query for log entries does not join the names, because the database might then start from the agents and sort
    the whole log.
    """
    found = await session.exec(select(Agent.id, Agent.name).where(col(Agent.id).in_(list(ids))))
    return dict(found.all())


async def fetch_rows(session: AsyncSession, query: Executable) -> Sequence[Sequence[Any]]:
    """Execute a query and return its rows with all columns."""
    # Do not use `session.exec`, because it returns only the first column of a query that began as select(LogEntry).
    found: Sequence[Sequence[Any]] = (await (await session.connection()).execute(query)).all()
    return found


async def to_lines(session: AsyncSession, found: Sequence[Sequence[Any]]) -> Sequence[LogLine]:
    """Convert database rows to lines of a list, and add the names of the agents."""
    names = await agent_names(session, {row[1] for row in found}) if found else {}
    return [LogLine(row[0], row[1], names[row[1]], *row[2:]) for row in found]


async def _recent_first(
    session: AsyncSession, filters: Filters, after: Position | None, count: int, query: Query
) -> Sequence[Sequence[Any]]:
    """Execute a query for the newest entries that are older than the position `after`, and return its rows.

    On PostgreSQL, each month is a separate table. A query without the filter `begins` is therefore first limited to the
    newest months, in the steps of `RECENT_MONTHS`. It reads the whole log only if these months contain fewer than
    `count` rows.
    """
    if filters.begins is None and (await session.connection()).dialect.name == "postgresql":
        ends = (now(session), filters.ends, None if after is None else after.created_at)
        latest = min(moment for moment in ends if moment is not None)
        for months in RECENT_MONTHS:
            found = await query(replace(filters, begins=month_start(latest, -months)))
            if len(found) >= count:
                return found
    return await query(filters)


def _view(entry: LogEntry, agent_name: str) -> LogEntryView:
    context = None if entry.context is None else strict_json.loads_own(entry.context)
    return LogEntryView.model_validate(entry.model_dump() | {"context": context, "agent_name": agent_name})


def _select_lines(query: SelectOfScalar[LogEntry]) -> Select[Any]:
    # Load only excerpts of the contexts, because the complete contexts of fifty entries can take up three megabytes.
    return query.with_only_columns(*_COLUMNS, func.substr(LogEntry.context, 1, EXCERPT_LENGTH), _SIZE)


def _narrowest(filters: Filters) -> Filters:
    """Return the filters that a query can apply with one index: the most selective column, and the time range."""
    if filters.agent_id is not None:
        return replace(filters, action=None, status=None)
    return filters if filters.action is None else replace(filters, status=None)


class RetentionTerms(NamedTuple):
    """Organization with the values that determine how long its log entries are kept.

    Attributes:
        id: Id of the organization.
        plan: Name of its plan.
        plan_changed_at: Time of the last change of the plan; None if the plan never changed.
        retention_days_before: Retention of the previous plan in days; -1 means without limit, and None means that there
            is no previous plan.
    """

    id: str
    plan: str
    plan_changed_at: datetime | None
    retention_days_before: int | None


async def tenants_with_old_rows(
    database: Database,
    table: type[Any],
    before: datetime,
    environment: str | None = None,
    plan: str | None = None,
) -> Sequence[RetentionTerms]:
    """Return the organizations that have rows older than `before` in `table`.

    `environment` restricts the search to rows of one environment, and `plan` to organizations with one plan. The query
    reads only the oldest row of each organization, with one index lookup.
    """
    oldest = select(table.created_at).where(
        table.organization_id == Organization.id, col(table.created_at) < before
    )
    if environment is not None:
        oldest = oldest.where(table.environment == environment)
    oldest = oldest.order_by(col(table.created_at)).limit(1).correlate(Organization)
    query = _select_terms().where(oldest.scalar_subquery().is_not(None))
    if plan is not None:
        query = query.where(Organization.plan == plan)
    found: list[RetentionTerms] = []
    last = ""
    async with database.reading() as session:
        # Read the organizations with several statements, because with many partitions a single statement would exceed
        # the statement timeout.
        ids = select(Organization.id).order_by(col(Organization.id)).limit(ORGANIZATIONS_PER_QUERY)
        while some := (await session.exec(ids.where(Organization.id > last) if last else ids)).all():
            last = some[-1]
            within = col(Organization.id).between(some[0], last)
            found += [RetentionTerms._make(row) for row in (await session.exec(query.where(within))).all()]
    return found


async def tenants_with_old_counts(
    database: Database, environment: str, before: datetime
) -> Sequence[RetentionTerms]:
    """Return the organizations that have counts of log entries older than `before` in an environment."""
    # Search only counts of hours, with one index lookup per organization. An organization with counts of days always
    # has counts of hours too.
    oldest = (
        select(LogCount.starts)
        .where(
            LogCount.organization_id == Organization.id,
            LogCount.environment == environment,
            LogCount.subject == ALL,
            LogCount.span == HOUR,
        )
        .order_by(col(LogCount.starts))
        .limit(1)
        .correlate(Organization)
    )
    query = _select_terms().where(oldest.scalar_subquery() <= minute_of(before) - HOUR)
    async with database.reading() as session:
        return [RetentionTerms._make(row) for row in (await session.exec(query)).all()]


def _select_terms() -> TypedSelect[str, str, datetime | None, int | None]:
    return select(
        Organization.id,
        Organization.plan,
        col(Organization.plan_changed_at),
        col(Organization.retention_days_before),
    )


_ID = col(LogEntry.id)
_COLUMNS = tuple(
    getattr(LogEntry, name) for name in ("id", "agent_id", "action", "status", "created_at", "run_id")
)
_SIZE = func.coalesce(func.length(LogEntry.context), 0)
