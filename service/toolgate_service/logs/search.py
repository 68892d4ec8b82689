"""Full-text search in the contexts of log entries, in limited steps.

Contexts have no index, so the search reads entries one by one, newest first. One call stops after a maximum number of
entries, characters or seconds. The caller continues with another call from the position where it stopped.
"""

import asyncio
import time
import unicodedata
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.strict_json import Json
from toolgate_service.db.pagination import Position
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.repository import (
    EXCERPT_LENGTH,
    Filters,
    LogLine,
    LogPage,
    fetch_rows,
    find_floor,
    in_order,
    to_lines,
)

#: limits of one call of `search`: entries read, characters of their contexts, and seconds
MAX_ENTRIES = 5_000
MAX_CHARACTERS = 4_000_000
MAX_SECONDS = 0.02
#: Numbers of entries in the first batch and in the largest later batch. The first batch is small, because the length of
#: the contexts is not known yet.
_FIRST_BATCH = 60
_LARGEST_BATCH = 500


class TextMatcher:
    """Matcher for a literal text in contexts.

    A context matches if a single member name or value contains the text. Numbers, ``true``, ``false`` and ``null`` are
    compared as written in JSON. The comparison ignores case (full Unicode case folding) and treats canonically
    equivalent characters as equal (NFC).
    """

    def __init__(self, text: str) -> None:
        self._text = _fold(text)
        self._escaped = encode_basestring(self._text)[1:-1]

    def matches(self, context: str | None) -> bool:
        """Return whether a context, given as canonical JSON, contains the text."""
        if context is None or not self._may_match(context):
            return False
        return any(self._text in _fold(part) for part in _parts(strict_json.loads_own(context)))

    def _may_match(self, context: str) -> bool:
        # A search in the stored text excludes most contexts, in a tenth of the time of parsing them.
        if context.isascii():
            return self._escaped in context.lower()
        # A context with escape sequences is not excluded: a combining mark may follow an escaped letter, and the stored
        # text does not show the composed character.
        return "\\" in context or self._text in _fold(context)


async def search(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    filters: Filters,
    matcher: TextMatcher,
    after: Position | None,
    limit: int,
) -> LogPage:
    """Search one part of the log, and return the matching entries, newest first.

    Args:
        session: A database session.
        organization_id: Id of the organization.
        environment: Name of the environment.
        filters: Further conditions; `begins` is required.
        matcher: Matcher for the text.
        after: Position after which the search starts; None to start with the newest entry.
        limit: Number of matches after which the search stops.

    Raises:
        FieldErrors: 400, `filters.begins` is missing.
    """
    if filters.begins is None:
        raise FieldErrors({"from": ["must be given: a text is looked for only within a time range"]})
    if filters.match_nothing:
        return LogPage((), scanned=0)
    floor = await find_floor(session, organization_id, environment, filters, after)
    found: list[Sequence[Any]] = []
    scanned = characters = 0
    size, position, until = min(_FIRST_BATCH, MAX_ENTRIES), after, None
    while True:
        query = in_order(organization_id, environment, filters, position, floor)
        fetched = await fetch_rows(session, query.with_only_columns(*_COLUMNS).limit(size))
        # The time limit starts after the first batch is read, so that each call searches at least one batch, even with
        # a slow database.
        until = until or time.perf_counter() + MAX_SECONDS
        # The batch is searched in a thread, so that the event loop can process checks in the meantime.
        read, hits = await asyncio.to_thread(_scan, fetched, matcher, limit - len(found), until)
        found += hits
        scanned += read
        characters += sum(len(row[-1] or "") for row in fetched[:read])
        if read:
            position = Position(fetched[read - 1][4], fetched[read - 1][0])
        if read == len(fetched) < size:
            # The search has reached the end of the log, or the position `floor`.
            return LogPage(await _to_lines(session, found), floor, scanned)
        if (
            len(found) >= limit
            or scanned >= MAX_ENTRIES
            or characters >= MAX_CHARACTERS
            or time.perf_counter() >= until
        ):
            return LogPage(await _to_lines(session, found), position, scanned)
        average = characters // scanned + 1
        size = max(1, min(_LARGEST_BATCH, MAX_ENTRIES - scanned, (MAX_CHARACTERS - characters) // average))


def _scan(
    rows: Sequence[Sequence[Any]], matcher: TextMatcher, limit: int, until: float
) -> tuple[int, list[Sequence[Any]]]:
    """Search rows, and return the number of rows that were searched and the matching rows.

    The search stops after `limit` matches, or when `time.perf_counter()` reaches `until`. At least one row is searched.
    """
    hits = []
    for number, row in enumerate(rows, 1):
        if matcher.matches(row[-1]):
            hits.append(row)
        if len(hits) == limit or time.perf_counter() >= until:
            return number, hits
    return len(rows), hits


async def _to_lines(session: AsyncSession, rows: Sequence[Sequence[Any]]) -> Sequence[LogLine]:
    return await to_lines(
        session,
        [
            (*row[:-1], None if row[-1] is None else row[-1][:EXCERPT_LENGTH], len(row[-1] or ""))
            for row in rows
        ],
    )


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text.casefold())


def _parts(value: Json) -> Iterator[str]:
    """Yield every member name and every scalar value of a context as text."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            yield from one
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
        else:
            yield strict_json.dumps(one)


_COLUMNS = tuple(
    getattr(LogEntry, name)
    for name in ("id", "agent_id", "action", "status", "created_at", "run_id", "context")
)
