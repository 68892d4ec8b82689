"""What an open inbox is told: what waits, as it changes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.console.inbox.waiting import COUNTED, votes_on, waiting_ids
from toolgate_service.console.live import event


class Seen(NamedTuple):
    """What waits, newest first, and how many people have voted on what."""

    ids: Sequence[str]
    votes: Mapping[str, int]


async def look(session: AsyncSession, organization_id: str, environment: str) -> Seen:
    """Return what waits."""
    ids = await waiting_ids(session, organization_id, environment)
    return Seen(ids, await votes_on(session, ids))


async def told(seen: Seen) -> bytes:
    """Return what an inbox is told of it."""
    ids, votes = seen
    more = len(ids) > COUNTED
    said = {"count": min(len(ids), COUNTED), "more": more, "ids": list(ids[:COUNTED]), "votes": dict(votes)}
    return event("waiting", said)
