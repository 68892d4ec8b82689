"""Looking for a text in the arguments of log entries, a slice of the log at a time.

No index holds what contexts say, so entries are looked at one by one in the list's order, and never all of them: a slice
ends after so many entries, so many characters, or so much time, and whoever asks goes on from where it ended.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.errors import FieldErrors
from toolgate_service.logs.lines import BEGINNING, Slice, floor_of, named, rows
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.service import Filters, in_order
from toolgate_service.logs.wanted import Wanted
from toolgate_service.web.paging import Position

#: entries, characters of contexts, and seconds of a slice
ENTRIES = 5_000
CHARACTERS = 4_000_000
SECONDS = 0.02
#: entries fetched at first, when nobody knows how long their contexts are, and at the most
_FIRST = 60
_MOST = 500


async def search(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    filters: Filters,
    wanted: Wanted,
    after: Position | None,
    limit: int,
) -> Slice:
    """Look for a text in a slice of the log, newest first.

    Args:
        session: one snapshot.
        organization_id: whose log.
        environment: of which environment.
        filters: which entries; from when on is never left open.
        wanted: what is looked for in their contexts.
        after: behind which place it begins; None for the newest.
        limit: how many lines at the most.

    Raises:
        FieldErrors: 400, nothing says from when on.
    """
    if filters.begins is None:
        raise FieldErrors({"from": ["must be given: a text is looked for only within a time range"]})
    if filters.match_nothing:
        return Slice((), looked_at=0)
    floor = await floor_of(session, organization_id, environment, filters, after)
    found: list[Sequence[Any]] = []
    looked_at = characters = 0
    size, place, until = min(_FIRST, ENTRIES), after, None
    while True:
        query = in_order(organization_id, environment, filters, place, floor).with_only_columns(*_COLUMNS)
        fetched = await rows(session, query.limit(size))
        # Counted from the first entries on, which are few: a database that is slow just now ends no slice before it began.
        until = until or time.perf_counter() + SECONDS
        # On a thread: nobody's check waits for it.
        seen, hits = await asyncio.to_thread(_look, fetched, wanted, limit - len(found), until)
        found += hits
        looked_at += seen
        characters += sum(len(row[-1] or "") for row in fetched[:seen])
        if seen:
            place = Position(fetched[seen - 1][4], fetched[seen - 1][0])
        if seen == len(fetched) < size:
            # As far as there is, or as the slice goes.
            return Slice(await _lines(session, found), floor, looked_at)
        if (
            len(found) >= limit
            or looked_at >= ENTRIES
            or characters >= CHARACTERS
            or time.perf_counter() >= until
        ):
            return Slice(await _lines(session, found), place, looked_at)
        each = characters // looked_at + 1
        size = max(1, min(_MOST, ENTRIES - looked_at, (CHARACTERS - characters) // each))


def _look(
    rows: Sequence[Sequence[Any]], wanted: Wanted, room: int, until: float
) -> tuple[int, list[Sequence[Any]]]:
    """Return how many rows were looked at, one at the least, and which of them have it."""
    hits = []
    for number, row in enumerate(rows, 1):
        if wanted.is_in(row[-1]):
            hits.append(row)
        if len(hits) == room or time.perf_counter() >= until:
            return number, hits
    return len(rows), hits


async def _lines(session: AsyncSession, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
    return await named(
        session,
        [(*row[:-1], None if row[-1] is None else row[-1][:BEGINNING], len(row[-1] or "")) for row in rows],
    )


_COLUMNS = tuple(
    getattr(LogEntry, name)
    for name in ("id", "agent_id", "action", "status", "created_at", "run_id", "context")
)
