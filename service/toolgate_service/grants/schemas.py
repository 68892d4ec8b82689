"""Response bodies of temporary approvals (grants), and the function that creates them."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.core import strict_json
from toolgate_service.db.database import now
from toolgate_service.grants.models import Grant, GrantVote, state_of


class GrantVoteView(BaseModel):
    """Vote of one user for a temporary approval.

    Attributes:
        credential: Credential with which the user was authenticated, as ids without secrets; null unless the caller is
            an admin.
    """

    user_id: str
    note: str | None
    credential: Mapping[str, str] | None = None
    created_at: datetime


class GrantView(BaseModel):
    """Temporary approval. `status` is `proposed`, `active`, `exhausted`, `expired` or `revoked`.

    `uses`, `seconds` and `except_fields` are former names of `max_uses`, `duration_seconds` and `ignored_fields`, and are
    part of the response until version 0.2.
    """

    id: str
    agent_id: str
    agent_name: str
    action: str
    permission_id: str
    approval_id: str
    status: str
    max_uses: int
    uses_left: int
    duration_seconds: int
    context: Mapping[str, Any]
    ignored_fields: Sequence[str]
    uses: int = Field(deprecated=True)
    seconds: int = Field(deprecated=True)
    except_fields: Sequence[str] = Field(deprecated=True)
    required_approvals: int
    votes: Sequence[GrantVoteView]
    created_at: datetime
    starts_at: datetime | None
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None


async def serialize_grants(
    session: AsyncSession, grants: Sequence[Grant], *, credentials: bool = False
) -> list[GrantView]:
    """Return the response bodies of temporary approvals.

    `credentials` includes how each voter was authenticated, which only admins may see.
    """
    agents_query = select(Agent.id, Agent.name).where(col(Agent.id).in_({grant.agent_id for grant in grants}))
    names = dict((await session.exec(agents_query)).all())
    votes_query = (
        select(GrantVote)
        .where(col(GrantVote.grant_id).in_([grant.id for grant in grants]))
        .order_by(col(GrantVote.created_at), col(GrantVote.user_id))
    )
    votes: defaultdict[str, list[GrantVoteView]] = defaultdict(list)
    for vote in (await session.exec(votes_query)).all():
        stored = vote.credential if credentials else None
        credential = None if stored is None else strict_json.loads_own(stored)
        votes[vote.grant_id].append(
            GrantVoteView.model_validate(vote.model_dump() | {"credential": credential})
        )
    moment = now(session)
    return [
        GrantView.model_validate(
            grant.model_dump()
            | {
                "max_uses": grant.uses,
                "duration_seconds": grant.seconds,
                "ignored_fields": json.loads(grant.except_fields),
                "agent_name": names[grant.agent_id],
                "status": state_of(grant, moment),
                "context": strict_json.loads_own(grant.context),
                "except_fields": json.loads(grant.except_fields),
                "votes": votes[grant.id],
            }
        )
        for grant in grants
    ]
