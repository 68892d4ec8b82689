"""Finding one log entry by its id."""

from datetime import MAXYEAR, UTC, datetime, timedelta

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.errors import not_found
from toolgate_service.ids import is_id
from toolgate_service.logs.models import LogEntry

#: how far an id's time may be from the entry's moment: both are one clock's, or a gateway's and its database's
_APART = (timedelta(seconds=2), timedelta(minutes=1))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def find_entry(
    session: AsyncSession, organization_id: str, environment: str, entry_id: str
) -> LogEntry:
    """Return one log entry.

    There is no index of ids, which would cost every entry that is written. An id says when it was made, and the log is
    kept in the order of its moments.

    Raises:
        ApiError: 404, there is none of that id in the organization and environment.
    """
    made = _made_at(entry_id)
    if made is None:
        raise not_found("Log entry")
    for apart in _APART:
        query = select(LogEntry).where(
            LogEntry.organization_id == organization_id,
            LogEntry.environment == environment,
            col(LogEntry.created_at).between(made - apart, made + apart),
            LogEntry.id == entry_id,
        )
        found = (await session.exec(query)).first()
        if found is not None:
            return found
    raise not_found("Log entry")


def _made_at(entry_id: str) -> datetime | None:
    """Return when an id was made (RFC 9562 §5.7); None for what is no id, or of no time that there is."""
    if not is_id(entry_id):
        return None
    try:
        made = _EPOCH + timedelta(milliseconds=int(entry_id.replace("-", "")[:12], 16))
    except OverflowError:
        return None
    # Beyond it there is no minute later.
    return made if made.year < MAXYEAR else None
