"""Reading the log."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import literal, tuple_
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.ids import is_id
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.schemas import LogEntryView
from toolgate_service.storage.pruning import ForPartitions
from toolgate_service.storage.types import Id, Timestamp
from toolgate_service.web.fields import is_action
from toolgate_service.web.paging import Found, Page, Position, find_page, newest_first


@dataclass(frozen=True, slots=True)
class Filters:
    """Which entries of an environment are meant; None leaves a column open."""

    agent_id: str | None = None
    status: str | None = None
    action: str | None = None
    #: the first moment, and the first one after the last
    begins: datetime | None = None
    ends: datetime | None = None

    @property
    def match_nothing(self) -> bool:
        """Whether no entry can match: the database is not asked about what it cannot even compare."""
        return (self.agent_id is not None and not is_id(self.agent_id)) or (
            self.action is not None and not is_action(self.action)
        )


async def list_entries(
    session: AsyncSession, caller: Caller, environment: str, filters: Filters, page: Page
) -> Found[LogEntryView]:
    """Return a page of log entries, newest first; those of deleted agents too."""
    if filters.match_nothing:
        return Found([], 0, None)
    query = matching(caller.organization_id, environment, filters)
    found = await find_page(session, query, LogEntry, page)
    names = await agent_names(session, {entry.agent_id for entry in found.rows})
    views = [_view(entry, names[entry.agent_id]) for entry in found.rows]
    return Found(views, found.total, found.last)


def matching(organization_id: str, environment: str, filters: Filters) -> SelectOfScalar[LogEntry]:
    """Return the query for entries, in no order."""
    query = select(LogEntry).where(
        LogEntry.organization_id == organization_id, LogEntry.environment == environment
    )
    # The narrowest first: there is an index for each, and SQLite, which does not know what a table holds, takes any of
    # them. What is no bare column has no index.
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
    """Return the query for entries, newest first, from behind one place down to another, which belongs to it.

    One bound on each side: given a moment and a place, SQLite looks the moment up and reads on to the place.

    Args:
        organization_id: whose.
        environment: of which environment.
        filters: which entries.
        after: a place of this list; None to begin with the newest.
        floor: a place of this list; None for all that there is.
    """
    if after is not None and filters.ends is not None and after.created_at < filters.ends:
        filters = replace(filters, ends=None)
    if floor is not None:
        filters = replace(filters, begins=None)
    query = newest_first(matching(organization_id, environment, filters), LogEntry, after)
    moment = col(LogEntry.created_at)
    if after is not None:
        query = query.where(ForPartitions(moment <= literal(after.created_at, Timestamp())))
    if floor is None:
        return query
    lowest = tuple_(literal(floor.created_at, Timestamp()), literal(floor.id, Id()))
    query = query.where(tuple_(moment, col(LogEntry.id)) >= lowest)
    return query.where(ForPartitions(moment >= literal(floor.created_at, Timestamp())))


async def agent_names(session: AsyncSession, ids: Iterable[str]) -> dict[str, str]:
    """Return the names of agents, deleted ones included.

    Read apart from the entries: joined, a database may think it cheaper to begin with the agents, and sorts the log.
    """
    found = await session.exec(select(Agent.id, Agent.name).where(col(Agent.id).in_(list(ids))))
    return dict(found.all())


def _view(entry: LogEntry, agent_name: str) -> LogEntryView:
    context = None if entry.context is None else exact_json.loads_own(entry.context)
    return LogEntryView.model_validate(entry.model_dump() | {"context": context, "agent_name": agent_name})
