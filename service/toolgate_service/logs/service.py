"""Search, export and deletion of log entries.

The contexts of entries have no index, so a search reads the entries one by one, newest first. One call stops after a
maximum number of entries, characters or seconds. The caller continues with another call, from the position at which the
previous call stopped.
"""

import asyncio
import logging
import time
import unicodedata
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring
from typing import Any

from sqlalchemy import case, tuple_
from sqlmodel import col, delete, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AppContext
from toolgate_service.core import strict_json
from toolgate_service.core.clock import month_start
from toolgate_service.core.errors import FieldErrors, StorageFault
from toolgate_service.core.plans import PLAN_NAMES, RETENTION_GRACE, UNLIMITED, Plans, longest, shortest
from toolgate_service.core.strict_json import Json
from toolgate_service.db.database import Database
from toolgate_service.db.models import ENVIRONMENTS, PRODUCTION, TEST, PartitionHint
from toolgate_service.db.pagination import Position
from toolgate_service.db.sqlite import SqliteDatabase
from toolgate_service.jobs.batches import delete_where, in_batches
from toolgate_service.jobs.scheduler import steady_from
from toolgate_service.logs.counts import minute_of
from toolgate_service.logs.models import ACTION, AGENT, ALL, DAY, HOUR, DayCount, LogCount, LogEntry
from toolgate_service.logs.repository import (
    EXCERPT_LENGTH,
    Filters,
    LogLine,
    LogPage,
    agent_names,
    fetch_rows,
    find_floor,
    in_order,
    tenants_with_old_counts,
    tenants_with_old_rows,
    to_lines,
)
from toolgate_service.logs.schemas import FORMATS, Format, entry_bytes
from toolgate_service.organizations.models import Environment
from toolgate_service.transparency.chunks import announce_retention
from toolgate_service.transparency.leaves import LOG_ENTRY

#: maximum number of entries that an export holds in memory; one entry can have 64 KiB
BATCH = 100


async def export_entries(
    context: AppContext, organization_id: str, environment: str, filters: Filters, form: Format
) -> AsyncGenerator[bytes]:
    """Yield the parts of a file that contains all matching log entries, newest first.

    All entries are read from one snapshot of the database. At most `BATCH` entries are in memory at a time.

    Raises:
        ApiError: 429, too many exports are running.
    """
    header, write = FORMATS[form].header, FORMATS[form].write
    with context.exports.acquire(organization_id):
        if filters.match_nothing:
            yield header
            return
        async with context.database.exporting() as session:
            names: dict[str, str] = {}
            after: Position | None = None
            while entries := await _read_batch(session, organization_id, environment, filters, after):
                unknown = {entry.agent_id for entry in entries} - names.keys()
                names |= await agent_names(session, unknown) if unknown else {}
                yield header + write((entry, names[entry.agent_id]) for entry in entries)
                header, after = b"", Position(entries[-1].created_at, entries[-1].id)
            if header:
                yield header


async def _read_batch(
    session: AsyncSession, organization_id: str, environment: str, filters: Filters, after: Position | None
) -> list[LogEntry]:
    query = in_order(organization_id, environment, filters, after)
    return list((await session.exec(query.limit(BATCH))).all())


#: limits of one call of `search`: number of entries, characters of their contexts, and seconds
MAX_ENTRIES = 5_000
MAX_CHARACTERS = 4_000_000
MAX_SECONDS = 0.02
#: Numbers of entries in the first batch and in the largest later batch of a search. The first batch is small, because
#: the length of the contexts is not known yet.
_FIRST_BATCH = 60
_LARGEST_BATCH = 500


class TextMatcher:
    """Matcher that finds a literal text in the contexts of log entries.

    A context matches if a single member name, string or other scalar value in it, at any depth, contains the text.
    Numbers, ``true``, ``false`` and ``null`` are compared as they are written in JSON. The comparison ignores case
    (full Unicode case folding) and treats canonically equivalent characters as equal (NFC).
    """

    def __init__(self, text: str) -> None:
        self._text = _fold(text)
        self._escaped = encode_basestring(self._text)[1:-1]

    def matches(self, context: str | None) -> bool:
        """Return whether a context contains the text. The context is given as canonical JSON."""
        if context is None or not self._may_match(context):
            return False
        return any(self._text in _fold(part) for part in _parts(strict_json.loads_own(context)))

    def _may_match(self, context: str) -> bool:
        # Search the stored text first, which excludes most contexts in a tenth of the time that parsing would take.
        if context.isascii():
            return self._escaped in context.lower()
        # Do not exclude a context with escape sequences: in the stored text, NFC would combine the last letter of a
        # sequence such as `\n` with a combining mark after it, and the searched text would not be found.
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
    """Search a part of the log for a text, and return the matching entries, newest first.

    The search starts with the newest entry, or after the position `after`. It stops after `limit` matching entries, or
    at `MAX_ENTRIES`, `MAX_CHARACTERS` or `MAX_SECONDS`. `filters.begins` is required.

    Raises:
        FieldErrors: 400, `filters.begins` is missing.
    """
    if filters.begins is None:
        raise FieldErrors({"from": ["is required, because a text is searched only within a time range"]})
    if filters.match_nothing:
        return LogPage((), scanned=0)
    floor = await find_floor(session, organization_id, environment, filters, after)
    found: list[Sequence[Any]] = []
    scanned = characters = 0
    size, position, until = min(_FIRST_BATCH, MAX_ENTRIES), after, None
    while True:
        query = in_order(organization_id, environment, filters, position, floor)
        fetched = await fetch_rows(session, query.with_only_columns(*_COLUMNS).limit(size))
        # Start the time limit after the first batch was read, so that each call searches at least one batch even if the
        # database is slow.
        until = until or time.perf_counter() + MAX_SECONDS
        # Search the batch in a thread, so that the event loop can process checks meanwhile.
        read, hits = await asyncio.to_thread(_scan, fetched, matcher, limit - len(found), until)
        found += hits
        scanned += read
        characters += sum(len(row[-1] or "") for row in fetched[:read])
        if read:
            position = Position(fetched[read - 1][4], fetched[read - 1][0])
        if read == len(fetched) < size:
            # The search has reached the position `floor` or, if `floor` is None, the end of the log.
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
    """Search rows for a text. Return the number of searched rows, and the matching rows.

    The search stops after `limit` matching rows, or when `time.perf_counter()` reaches `until`. At least one row is
    searched.
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
    """Yield each member name and each scalar value of a context as text."""
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


logger = logging.getLogger("toolgate.gateway")

#: number of days for which the data of test environments is kept
TEST_DAYS = 7


async def make_months(database: Database) -> None:
    """On PostgreSQL, create missing partitions of the log for the coming months.

    Nothing is done if the clock has jumped within the last day.
    """
    if isinstance(database, SqliteDatabase):
        return
    moment, trusted = await steady_from(database)
    if trusted > moment:
        return
    # Import the module here, because it needs the PostgreSQL driver, which is an optional dependency.
    from toolgate_service.db.postgres import PostgresDatabase
    from toolgate_service.logs import partitions

    if isinstance(database, PostgresDatabase):
        try:
            made = await partitions.make_months(database)
        except StorageFault as fault:
            # The table `log_entries` is locked, or the database role of the gateway does not own it. A warning is
            # sufficient, because entries of a month without a partition are stored in the default partition.
            logger.warning(
                "cannot create partitions of the log: %s; new entries are stored in the default partition, and the next "
                "maintenance run tries again",
                fault,
            )
            return
        if made:
            logger.info("created partitions of the log: %s", ", ".join(made))


async def drop_months(database: Database, plans: Plans, moment: datetime) -> int:
    """On PostgreSQL, drop partitions of the log in which the retention of all entries has ended.

    Returns:
        Number of dropped entries.
    """
    if isinstance(database, SqliteDatabase):
        return 0
    from toolgate_service.db.postgres import PostgresDatabase
    from toolgate_service.logs import partitions

    if not isinstance(database, PostgresDatabase):
        return 0
    try:
        return await partitions.drop_months(
            database,
            moment,
            lambda plan, changed_at, before: retention_days(plans, plan, changed_at, before, moment),
            TEST_DAYS,
        )
    except StorageFault as fault:
        # A long export can lock a partition, so that it cannot be dropped. Until the export ends, `prune_entries`
        # deletes the entries one by one.
        logger.warning("cannot drop partitions of the log: %s; the next maintenance run tries again", fault)
        return 0


async def prune_test_entries(database: Database, batch: int, organization_id: str, before: datetime) -> int:
    """Delete the test entries of an organization that are older than `before`, and return their number."""
    of = (LogEntry.organization_id == organization_id, LogEntry.environment == TEST)
    place = tuple_(col(LogEntry.created_at), col(LogEntry.id))
    old = (
        select(LogEntry)
        .where(*of, LogEntry.created_at < before)
        .order_by(col(LogEntry.created_at), col(LogEntry.id))
    )

    async def work(session: AsyncSession) -> int:
        # Lock the rows and skip rows that another gateway has locked, because otherwise both gateways would subtract
        # the size of the same entries from `log_bytes`.
        entries = (await session.exec(old.limit(batch).with_for_update(skip_locked=True))).all()
        if not entries:
            return 0
        places = [(entry.created_at, entry.id) for entry in entries]
        made = col(LogEntry.created_at)
        near = PartitionHint(made.between(places[0][0], places[-1][0]))
        await session.exec(delete(LogEntry).where(*of, near, place.in_(places)))  # type: ignore[arg-type]  # SQLModel declares columns with their Python types
        size = sum(entry_bytes(entry.action, entry.context) for entry in entries)
        held = col(Environment.log_bytes)
        await session.exec(
            update(Environment)
            .where(col(Environment.organization_id) == organization_id, col(Environment.name) == TEST)
            .values(log_bytes=case((held > size, held - size), else_=0))
        )
        return len(entries)

    async with database.reading() as session:
        if (await session.exec(old.limit(1))).first() is None:
            return 0
    await announce_retention(database, LOG_ENTRY, organization_id, TEST, before)
    return await in_batches(database, batch, work)


def retention_days(
    plans: Plans, plan: str, changed_at: datetime | None, before: int | None, moment: datetime
) -> int:
    """Return the number of days for which the log entries of an organization are kept; -1 means without limit.

    After a change of the plan at `changed_at`, the longer of two retentions applies for 30 days: the retention of the
    current plan, and `before`, the retention of the previous plan in days.
    """
    days = plans[plan].log_retention_days
    if before is None or changed_at is None or moment >= changed_at + RETENTION_GRACE:
        return days
    return longest(days, before)


async def expired_tenants(
    database: Database, model: type[Any], plans: Plans, moment: datetime
) -> AsyncIterator[tuple[str, datetime]]:
    """Yield each organization that may have expired production rows, and the time before which its rows are expired.

    `model` is the table of the rows: log entries, or decisions, which are kept for the same time.
    """
    for plan in PLAN_NAMES:
        days = plans[plan].log_retention_days
        if days == UNLIMITED:
            continue
        for tenant in await tenants_with_old_rows(
            database, model, moment - timedelta(days=days), PRODUCTION, plan
        ):
            kept = retention_days(plans, *tenant[1:], moment)
            if kept != UNLIMITED:
                yield tenant.id, moment - timedelta(days=kept)


async def announce_deletions(database: Database, plans: Plans, moment: datetime) -> None:
    """Add leaves to the transparency log that announce the deletions by `drop_months` and `prune_entries`."""
    async for organization_id, before in expired_tenants(database, LogEntry, plans, moment):
        await announce_retention(database, LOG_ENTRY, organization_id, PRODUCTION, before)


async def prune_entries(database: Database, plans: Plans, batch: int, moment: datetime) -> int:
    """Delete production entries that are older than the retention of their organization, and return their number."""
    removed = 0
    async for organization_id, before in expired_tenants(database, LogEntry, plans, moment):
        removed += await _prune_entries_of(database, batch, organization_id, before)
    return removed


async def _prune_entries_of(database: Database, batch: int, organization_id: str, before: datetime) -> int:
    """Delete the production entries of an organization that are older than `before`, and return their number.

    Each step deletes the entries of one month, so that PostgreSQL reads only one partition.
    """
    of = (col(LogEntry.organization_id) == organization_id, col(LogEntry.environment) == PRODUCTION)
    made = col(LogEntry.created_at)
    removed, since = 0, datetime.min.replace(tzinfo=UTC)
    while True:
        oldest = select(made).where(*of, made >= since, made < before).order_by(made).limit(1)
        async with database.reading() as session:
            begins = (await session.exec(oldest)).first()
        if begins is None:
            return removed
        since = min(month_start(begins, 1), before)
        removed += await delete_where(database, batch, LogEntry, *of, within=(made >= begins, made < since))


async def prune_counts(database: Database, plans: Plans, batch: int, moment: datetime) -> Counter[str]:
    """Delete counts of log entries that are older than their retention.

    Returns:
        Numbers of deleted rows by table name.
    """
    removed: Counter[str] = Counter()
    for environment in ENVIRONMENTS:
        is_test = environment == TEST
        least = TEST_DAYS if is_test else shortest(*(plan.log_retention_days for plan in plans.values()))
        if least == UNLIMITED:
            continue
        for tenant in await tenants_with_old_counts(database, environment, moment - timedelta(days=least)):
            days = TEST_DAYS if is_test else retention_days(plans, *tenant[1:], moment)
            if days != UNLIMITED:
                before = moment - timedelta(days=days)
                removed += await _prune_counts_of(database, batch, tenant.id, environment, before)
    return removed


async def _prune_counts_of(
    database: Database, batch: int, organization_id: str, environment: str, before: datetime
) -> Counter[str]:
    days = (
        col(DayCount.organization_id) == organization_id,
        col(DayCount.environment) == environment,
        # Delete only earlier days, because some entries of the day that contains `before` must still be counted.
        col(DayCount.day) < minute_of(before) // DAY,
    )
    # Delete the counts of hours last, because `tenants_with_old_counts` searches for them: after an interrupted
    # deletion, the next run then still finds the organization.
    hours = (
        col(LogCount.organization_id) == organization_id,
        col(LogCount.environment) == environment,
        col(LogCount.subject) == ALL,
        col(LogCount.span) == HOUR,
        col(LogCount.starts) <= minute_of(before) - HOUR,
    )
    removed: Counter[str] = Counter()
    for subject in (AGENT, ACTION):
        of = (*days, col(DayCount.subject) == subject)
        removed["day_counts"] += await delete_where(database, batch, DayCount, *of)
    removed["log_counts"] += await delete_where(database, batch, LogCount, *hours)
    return removed
