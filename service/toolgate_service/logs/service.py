"""Reading the log."""

from collections.abc import Sequence

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.schemas import LogEntryView


async def list_entries(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    *,
    agent_id: str | None,
    status: str | None,
    action: str | None,
    limit: int,
    offset: int,
) -> Sequence[LogEntryView]:
    """Return log entries, newest first; those of deleted agents too."""
    query = (
        select(LogEntry, Agent.name)
        .join(Agent, col(Agent.id) == LogEntry.agent_id)
        .where(LogEntry.organization_id == caller.organization_id, LogEntry.environment == environment)
        .order_by(col(LogEntry.created_at).desc(), col(LogEntry.id).desc())
        .limit(limit)
        .offset(offset)
    )
    if agent_id is not None:
        query = query.where(LogEntry.agent_id == agent_id)
    if status is not None:
        query = query.where(LogEntry.status == status)
    if action is not None:
        query = query.where(LogEntry.action == action)
    found = (await session.exec(query)).all()
    return [_view(entry, agent_name) for entry, agent_name in found]


def _view(entry: LogEntry, agent_name: str) -> LogEntryView:
    context = None if entry.context is None else exact_json.loads_own(entry.context)
    return LogEntryView.model_validate(entry.model_dump() | {"context": context, "agent_name": agent_name})
