"""The log as people leaf through it: pages that cost a page, whatever it is filtered by and however long it is.

Nothing is counted. Filtered by one column, an index has the page. By several, what matches may be rare: so many entries of
the narrowest index are looked through, and then whoever asks may have the rest looked through in the same way.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import Executable, Select, literal, tuple_
from sqlmodel import col, func
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.months.catalogue import month_of
from toolgate_service.logs.service import Filters, agent_names, in_order, matching
from toolgate_service.storage.database import now
from toolgate_service.storage.pruning import ForPartitions
from toolgate_service.storage.types import Id, Timestamp
from toolgate_service.web.paging import Position

#: entries of the narrowest index that are looked through for what several filters ask
LOOKED_THROUGH = 10_000
#: entries at whose ids one looks for news
_NEWEST = 100
#: of a log in months, how many before the newest wanted are looked at in place of all
LATELY = (1, 12)
#: characters of a context that a line has
BEGINNING = 2_000

#: finds rows that match filters
Ask: TypeAlias = Callable[[Filters], Awaitable[Sequence[Sequence[Any]]]]


@dataclass(frozen=True, slots=True)
class Line:
    """An entry among others.

    Attributes:
        id: which.
        agent_id: who acted.
        agent_name: their name.
        action: what was done.
        status: what came of it.
        created_at: when it was recorded.
        run_id: the run that the caller says it belongs to.
        beginning: of the context's canonical text, at most `BEGINNING` characters; None when none was sent.
        size: characters of the whole.
    """

    id: str
    agent_id: str
    agent_name: str
    action: str
    status: str
    created_at: datetime
    run_id: str | None
    beginning: str | None
    size: int

    @property
    def place(self) -> Position:
        """Where it stands in the list."""
        return Position(self.created_at, self.id)


@dataclass(frozen=True, slots=True)
class Slice:
    """What was found in a part of the log.

    Attributes:
        lines: what matches, newest first.
        last: behind which place the rest is; None when there is no more.
        looked_at: how many entries were looked at, where that is not the same as what was found.
    """

    lines: Sequence[Line]
    last: Position | None = None
    looked_at: int | None = None


async def leaf(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    filters: Filters,
    after: Position | None,
    limit: int,
) -> Slice:
    """Return a page of the log, newest first.

    Args:
        session: one snapshot.
        organization_id: whose log.
        environment: of which environment.
        filters: which entries.
        after: behind which place it begins; None for the newest.
        limit: how many lines at the most.
    """
    if filters.match_nothing:
        return Slice(())
    floor = await floor_of(session, organization_id, environment, filters, after)

    async def ask(filters: Filters) -> Sequence[Sequence[Any]]:
        query = _lines(in_order(organization_id, environment, filters, after, floor))
        return await rows(session, query.limit(limit + 1))

    found = await ask(filters) if floor else await newest(session, filters, after, limit + 1, ask)
    lines = await named(session, found[:limit])
    if len(found) > limit:
        return Slice(lines, lines[-1].place)
    return Slice(lines, floor, None if floor is None else LOOKED_THROUGH)


async def around(session: AsyncSession, entry: LogEntry, count: int) -> tuple[Sequence[Line], Sequence[Line]]:
    """Return what the same agent did right after an entry, and right before it, newest first.

    Args:
        session: one snapshot.
        entry: which.
        count: how many of each at the most.
    """
    mine = (entry.organization_id, entry.environment)
    whose, at = Filters(agent_id=entry.agent_id), Position(entry.created_at, entry.id)

    async def ask(filters: Filters) -> Sequence[Sequence[Any]]:
        return await rows(session, _lines(in_order(*mine, filters, at)).limit(count))

    before = await newest(session, whose, at, count, ask)
    moment = literal(entry.created_at, Timestamp())
    place = tuple_(moment, literal(entry.id, Id()))
    later = matching(*mine, whose).where(tuple_(col(LogEntry.created_at), col(LogEntry.id)) > place)
    later = later.where(ForPartitions(col(LogEntry.created_at) >= moment))
    later = later.order_by(col(LogEntry.created_at), col(LogEntry.id))
    after = await rows(session, _lines(later).limit(count))
    return await named(session, after[::-1]), await named(session, before)


async def newest_ids(session: AsyncSession, organization_id: str, environment: str) -> Sequence[str]:
    """Return the ids of the newest entries, whose change says that something was written.

    Many, and not the last alone: of what several gateways write, the earlier may come to be seen the later.
    """
    # What is older is no news.
    lately = Filters(begins=month_of(now(session), -1))
    query = in_order(organization_id, environment, lately, None)
    return [row[0] for row in await rows(session, query.with_only_columns(_ID).limit(_NEWEST))]


async def floor_of(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    filters: Filters,
    after: Position | None,
) -> Position | None:
    """Return the place down to which a slice looks; None when it looks as far as there is.

    Args:
        session: one snapshot.
        organization_id: whose log.
        environment: of which environment.
        filters: which entries.
        after: behind which place the slice begins.
    """
    narrowest = _narrowest(filters)
    if narrowest == filters:
        return None

    async def ask(filters: Filters) -> Sequence[Sequence[Any]]:
        query = in_order(organization_id, environment, filters, after)
        place = query.with_only_columns(col(LogEntry.created_at), _ID)
        return await rows(session, place.offset(LOOKED_THROUGH - 1).limit(1))

    found = await newest(session, narrowest, after, 1, ask)
    return Position(*found[0]) if found else None


async def newest(
    session: AsyncSession, filters: Filters, after: Position | None, count: int, ask: Ask
) -> Sequence[Sequence[Any]]:
    """Return what a question finds that begins with the newest entries.

    Of a log in months it is asked of the last ones first, and only if they have not enough, of all.

    Args:
        session: one snapshot.
        filters: which entries.
        after: behind which place it begins.
        count: how many rows are enough.
        ask: asks, with filters.
    """
    if filters.begins is None and (await session.connection()).dialect.name == "postgresql":
        ends = (now(session), filters.ends, None if after is None else after.created_at)
        latest = min(moment for moment in ends if moment is not None)
        for months in LATELY:
            found = await ask(replace(filters, begins=month_of(latest, -months)))
            if len(found) >= count:
                return found
    return await ask(filters)


async def rows(session: AsyncSession, query: Executable) -> Sequence[Sequence[Any]]:
    """Return what a query finds, column by column."""
    # Of one that began with a whole entry, the session itself would return the first column.
    found: Sequence[Sequence[Any]] = (await (await session.connection()).execute(query)).all()
    return found


async def named(session: AsyncSession, found: Sequence[Sequence[Any]]) -> Sequence[Line]:
    """Return rows of the columns that a line has as lines, with their agents' names."""
    names = await agent_names(session, {row[1] for row in found}) if found else {}
    return [Line(row[0], row[1], names[row[1]], *row[2:]) for row in found]


def _lines(query: SelectOfScalar[LogEntry]) -> Select[Any]:
    # Not the whole context: fifty of them may have three megabytes.
    return query.with_only_columns(*_COLUMNS, func.substr(LogEntry.context, 1, BEGINNING), _SIZE)


def _narrowest(filters: Filters) -> Filters:
    """Return the one filter by whose column `matching` has an index read."""
    if filters.agent_id is not None:
        return replace(filters, action=None, status=None)
    return filters if filters.action is None else replace(filters, status=None)


_ID = col(LogEntry.id)
_COLUMNS = tuple(
    getattr(LogEntry, name) for name in ("id", "agent_id", "action", "status", "created_at", "run_id")
)
_SIZE = func.coalesce(func.length(LogEntry.context), 0)
