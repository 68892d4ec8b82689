"""Which requests wait, most urgent and newest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.approvals.models import PENDING, Approval, ApprovalVote
from toolgate_service.approvals.states import stands_at
from toolgate_service.console.visits import Visit
from toolgate_service.storage.database import now

Selected = TypeVar("Selected")

#: requests with so little time left go before all others
URGENT = timedelta(minutes=15)
#: of those at the most
MOST_URGENT = 10
#: newest ones that a page shows
ON_A_PAGE = 20
#: waiting requests are counted, and named to open pages, so far
COUNTED = 200


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits.

    Attributes:
        urgent: what soon runs out, the soonest first.
        newest: what else waits, newest first.
        ids: of everything that waits, newest first, as far as it is counted.
    """

    urgent: Sequence[Approval]
    newest: Sequence[Approval]
    ids: Sequence[str]

    @property
    def count(self) -> str:
        """How many wait, in words."""
        return f"{COUNTED}+" if len(self.ids) > COUNTED else str(len(self.ids))


async def waiting(session: AsyncSession, visit: Visit, *, offset: int = 0) -> Waiting:
    """Return what waits in a visit's environment.

    Args:
        session: one snapshot.
        visit: whose.
        offset: how many of the newest are left out.
    """
    moment = now(session)
    mine = _pending(select(Approval), session, visit.caller.organization_id, visit.environment)
    soon = mine.where(col(Approval.expires_at) <= moment + URGENT)
    urgent = (await session.exec(soon.order_by(col(Approval.expires_at)).limit(MOST_URGENT))).all()
    # Urgent ones that found no place above come in their turn here.
    rest = mine.where(col(Approval.id).not_in([one.id for one in urgent])) if urgent else mine
    newest = (await session.exec(_newest(rest).offset(offset).limit(ON_A_PAGE))).all()
    ids = await waiting_ids(session, visit.caller.organization_id, visit.environment)
    return Waiting(() if offset else urgent, newest, ids)


async def waiting_ids(session: AsyncSession, organization_id: str, environment: str) -> Sequence[str]:
    """Return the ids of what waits, newest first; one more than are counted says that there are more."""
    query = _pending(select(Approval.id), session, organization_id, environment)
    return (await session.exec(_newest(query).limit(COUNTED + 1))).all()


async def votes_on(session: AsyncSession, ids: Sequence[str]) -> Mapping[str, int]:
    """Return how many people have voted on each of some waiting requests; those without a vote are left out."""
    if not ids:
        return {}
    query = (
        select(ApprovalVote.approval_id, func.count())
        .where(col(ApprovalVote.approval_id).in_(ids))
        .group_by(col(ApprovalVote.approval_id))
    )
    return dict((await session.exec(query)).all())


async def with_waiting_call(session: AsyncSession, ids: Sequence[str]) -> Sequence[str]:
    """Return those of some pending requests for whose decision a call waits now."""
    if not ids:
        return ()
    query = select(Approval.id).where(col(Approval.id).in_(ids), col(Approval.waiting_until) > now(session))
    return (await session.exec(query.order_by(col(Approval.id)))).all()


async def count_waiting(session: AsyncSession, organization_id: str, environment: str) -> int:
    """Return how many wait, counted to one more than `COUNTED`."""
    return len(await waiting_ids(session, organization_id, environment))


def _pending(
    query: SelectOfScalar[Selected], session: AsyncSession, organization_id: str, environment: str
) -> SelectOfScalar[Selected]:
    return query.where(
        col(Approval.organization_id) == organization_id,
        col(Approval.environment) == environment,
        stands_at(PENDING, now(session)),
    )


def _newest(query: SelectOfScalar[Selected]) -> SelectOfScalar[Selected]:
    return query.order_by(col(Approval.created_at).desc(), col(Approval.id).desc())
