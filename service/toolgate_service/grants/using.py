"""Letting a check through by what was allowed for a while."""

import json

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.rights import why_not_enough
from toolgate_service.checks.question import Question
from toolgate_service.grants.matching import covers
from toolgate_service.grants.models import ACTIVE, Grant
from toolgate_service.grants.votes import voters_of, why_useless
from toolgate_service.hotpath.standing import Standing
from toolgate_service.storage.database import now

_USABLE = (
    select(Grant)
    .where(
        col(Grant.organization_id) == bindparam("organization_id"),
        col(Grant.environment) == bindparam("environment"),
        col(Grant.agent_id) == bindparam("agent_id"),
        col(Grant.action) == bindparam("action"),
        col(Grant.permission_id) == bindparam("permission_id"),
        col(Grant.status) == ACTIVE,
        col(Grant.expires_at) > bindparam("now"),
        col(Grant.uses_left) > 0,
        col(Grant.required_approvals) >= bindparam("people"),
    )
    .order_by(col(Grant.expires_at), col(Grant.id))
)


async def find_usable(
    session: AsyncSession, standing: Standing, question: Question, own: Approval | None
) -> Grant | None:
    """Return the grant that covers a check and ends first, judged as things stand in this transaction.

    Args:
        session: a transaction.
        standing: the permission, and where it stands.
        question: the check.
        own: the request that waits for this very check: the grant must meet the terms it was asked under as well.
    """
    values = {
        "organization_id": standing.organization_id,
        "environment": standing.environment,
        "agent_id": standing.agent_id,
        "action": question.action,
        "permission_id": standing.permission_id,
        "now": now(session),
        "people": own.required_approvals if own else 1,
    }
    for grant in (await session.exec(_USABLE, params=values)).all():
        seen = exact_json.loads_own(grant.context)
        if not isinstance(seen, dict) or not covers(seen, question.context, json.loads(grant.except_fields)):
            continue
        if await why_useless(session, grant) is not None:
            continue
        if own is None or await why_not_enough(session, own, voters_of(grant)) is None:
            return grant
    return None
