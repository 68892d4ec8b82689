"""What an open inbox is told: what waits, as it changes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.console.inbox.waiting import COUNTED, votes_on, waiting_ids, with_waiting_call
from toolgate_service.console.live import event


class Seen(NamedTuple):
    """Pending requests, newest first, how many people voted on each, and for which a call waits now."""

    ids: Sequence[str]
    votes: Mapping[str, int]
    with_call: Sequence[str]


async def look(session: AsyncSession, organization_id: str, environment: str) -> Seen:
    """Return what waits."""
    ids = await waiting_ids(session, organization_id, environment)
    return Seen(ids, await votes_on(session, ids), await with_waiting_call(session, ids))


async def told(seen: Seen) -> bytes:
    """Return what an inbox is told of it."""
    more = len(seen.ids) > COUNTED
    data = {
        "count": min(len(seen.ids), COUNTED),
        "more": more,
        "ids": list(seen.ids[:COUNTED]),
        "votes": dict(seen.votes),
        "with_call": list(seen.with_call),
    }
    return event("waiting", data)
