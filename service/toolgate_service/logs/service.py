"""Export of log entries to a file."""

from collections.abc import AsyncGenerator

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AppContext
from toolgate_service.db.pagination import Position
from toolgate_service.logs.export import FORMATS, Format
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.repository import Filters, agent_names, in_order

#: maximum number of entries that an export holds in memory; an entry can have 64 KiB
BATCH = 100


async def export_entries(
    context: AppContext, organization_id: str, environment: str, filters: Filters, form: Format
) -> AsyncGenerator[bytes]:
    """Yield a file with all matching entries, newest first, as a sequence of byte strings.

    All entries are read from one database snapshot. At most `BATCH` entries are in memory at a time.

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
