"""Database queries for pending approval requests and active freezes that several console pages use."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.models import User
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import PENDING, Approval, ApprovalVote, has_state
from toolgate_service.console.dependencies import PageContext
from toolgate_service.db.database import now
from toolgate_service.freezes.models import Freeze

Selected = TypeVar("Selected")

#: Pending approval requests that expire within this time are urgent and come first in the inbox.
URGENT_WITHIN = timedelta(minutes=15)
MAX_URGENT = 10
PAGE_SIZE = 20
#: Maximum number of pending approval requests that the console counts, and whose ids it sends to open pages.
COUNT_LIMIT = 200
#: Maximum number of active freezes in the notice on every page.
MAX_FREEZES_IN_NOTICE = 3


@dataclass(frozen=True, slots=True)
class PendingRequests:
    """One page of pending approval requests.

    Attributes:
        urgent: Requests that expire soon, in order of expiry. Only the first page contains them.
        newest: Other requests, newest first.
        ids: Ids of all pending requests of the environment, newest first, but at most `COUNT_LIMIT` + 1. The last one
            only shows that there are more than `COUNT_LIMIT`.
    """

    urgent: Sequence[Approval]
    newest: Sequence[Approval]
    ids: Sequence[str]

    @property
    def count(self) -> str:
        """Number of pending approval requests as text, such as "3"; "200+" if there are more than `COUNT_LIMIT`."""
        return f"{COUNT_LIMIT}+" if len(self.ids) > COUNT_LIMIT else str(len(self.ids))


async def list_pending(session: AsyncSession, page: PageContext, *, offset: int = 0) -> PendingRequests:
    """Return one page of an environment's pending approval requests.

    `offset` is the number of requests that earlier pages have shown, not counting urgent ones.
    """
    moment = now(session)
    mine = _pending(select(Approval), session, page.caller.organization_id, page.environment)
    soon = mine.where(col(Approval.expires_at) <= moment + URGENT_WITHIN)
    urgent = (await session.exec(soon.order_by(col(Approval.expires_at)).limit(MAX_URGENT))).all()
    # Exclude only the urgent requests that are displayed as such. If there are more than `MAX_URGENT`, the others
    # appear among the newest requests.
    rest = mine.where(col(Approval.id).not_in([one.id for one in urgent])) if urgent else mine
    newest = (await session.exec(_newest(rest).offset(offset).limit(PAGE_SIZE))).all()
    ids = await list_pending_ids(session, page.caller.organization_id, page.environment)
    return PendingRequests(() if offset else urgent, newest, ids)


async def list_pending_ids(session: AsyncSession, organization_id: str, environment: str) -> Sequence[str]:
    """Return the ids of an environment's pending approval requests, newest first; at most `COUNT_LIMIT` + 1."""
    query = _pending(select(Approval.id), session, organization_id, environment)
    return (await session.exec(_newest(query).limit(COUNT_LIMIT + 1))).all()


async def count_votes(session: AsyncSession, ids: Sequence[str]) -> Mapping[str, int]:
    """Return the number of votes by approval request id. Requests without votes are omitted."""
    if not ids:
        return {}
    query = (
        select(ApprovalVote.approval_id, func.count())
        .where(col(ApprovalVote.approval_id).in_(ids))
        .group_by(col(ApprovalVote.approval_id))
    )
    return dict((await session.exec(query)).all())


async def list_with_waiting_call(session: AsyncSession, ids: Sequence[str]) -> Sequence[str]:
    """Return the ids of those approval requests for which an agent is connected and waits for the decision."""
    if not ids:
        return ()
    query = select(Approval.id).where(col(Approval.id).in_(ids), col(Approval.waiting_until) > now(session))
    return (await session.exec(query.order_by(col(Approval.id)))).all()


async def load_emails(session: AsyncSession, user_ids: Collection[str]) -> Mapping[str, str]:
    """Return the e-mail addresses of the users with these ids, by user id."""
    if not user_ids:
        return {}
    query = select(User.id, User.email).where(col(User.id).in_(user_ids))
    return dict((await session.exec(query)).all())


async def count_pending(session: AsyncSession, organization_id: str, environment: str) -> int:
    """Return the number of an environment's pending approval requests; at most `COUNT_LIMIT` + 1."""
    return len(await list_pending_ids(session, organization_id, environment))


class FreezeNotice(NamedTuple):
    """Active freeze in the notice on every page.

    Attributes:
        agent: Name of the agent whose calls are denied; None for all agents.
        action: Denied action, or prefix of the denied actions; None for all actions.
        created_by: E-mail address of the user who created the freeze; None if the user no longer exists.
    """

    agent: str | None
    action: str | None
    created_by: str | None
    created_at: datetime


async def list_freeze_notices(session: AsyncSession, organization_id: str) -> Sequence[FreezeNotice]:
    """Return the newest active freezes for the notice on every page.

    The result contains at most `MAX_FREEZES_IN_NOTICE` + 1 freezes. The last one only shows that there are more than
    the notice contains. The function executes a single statement, because every page of the console calls it.
    """
    query = (
        select(Agent.name, Freeze.action, User.email, Freeze.created_at)
        .select_from(Freeze)
        .outerjoin(User, col(User.id) == col(Freeze.created_by))
        .outerjoin(Agent, col(Agent.id) == col(Freeze.agent_id))
        .where(col(Freeze.organization_id) == organization_id, col(Freeze.lifted_at).is_(None))
        .order_by(col(Freeze.created_at).desc(), col(Freeze.id).desc())
        .limit(MAX_FREEZES_IN_NOTICE + 1)
    )
    return [FreezeNotice(*row) for row in (await session.exec(query)).all()]


def _pending(
    query: SelectOfScalar[Selected], session: AsyncSession, organization_id: str, environment: str
) -> SelectOfScalar[Selected]:
    return query.where(
        col(Approval.organization_id) == organization_id,
        col(Approval.environment) == environment,
        has_state(PENDING, now(session)),
    )


def _newest(query: SelectOfScalar[Selected]) -> SelectOfScalar[Selected]:
    return query.order_by(col(Approval.created_at).desc(), col(Approval.id).desc())
