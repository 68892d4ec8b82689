"""Response bodies of temporary approvals (grants), and the function that creates them."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import CREDENTIAL, read_credential
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.schemas import shown_permission_id
from toolgate_service.core import strict_json
from toolgate_service.core.schemas import (
    EXAMPLE_AGENT_ID,
    EXAMPLE_APPROVAL_ID,
    EXAMPLE_EXPIRY,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    AgentId,
    CreatedAt,
    ResourceId,
    added_field,
    example,
)
from toolgate_service.db.database import now
from toolgate_service.grants.models import Grant, GrantVote, state_of


class GrantVoteView(BaseModel):
    """Vote of one user for a temporary approval."""

    user_id: str = Field(description="Id of the user, a UUID.")
    note: str | None = Field(description="Note of the user.")
    credential: Mapping[str, str] | None = Field(default=None, description=CREDENTIAL)
    created_at: CreatedAt


class GrantView(BaseModel):
    """Temporary approval (grant), which allows further calls of an agent without new requests."""

    model_config = example(
        id=EXAMPLE_ID,
        agent_id=EXAMPLE_AGENT_ID,
        agent_name="refund-bot",
        action="stripe.refund",
        permission_id=EXAMPLE_ID,
        approval_id=EXAMPLE_APPROVAL_ID,
        status="active",
        max_uses=10,
        uses_left=9,
        duration_seconds=3600,
        context={"customer": "cus_1", "amount": 25},
        ignored_fields=["order_id"],
        uses=10,
        seconds=3600,
        except_fields=["order_id"],
        required_approvals=1,
        votes=[
            {"user_id": EXAMPLE_USER_ID, "note": None, "credential": None, "created_at": EXAMPLE_TIME},
        ],
        created_at=EXAMPLE_TIME,
        starts_at=EXAMPLE_TIME,
        expires_at=EXAMPLE_EXPIRY,
        revoked_at=None,
        revoked_by=None,
    )

    id: ResourceId
    agent_id: AgentId
    agent_name: str = Field(description="Current name of the agent.")
    action: str = Field(description="Action of the calls that the temporary approval allows.")
    permission_id: str = Field(
        description="Id of the permission that covers the calls, a UUID. If only rules require the approvals, all "
        "digits of the id are 0."
    )
    approval_id: str = Field(
        description="Id of the approval request with which the temporary approval was given, a UUID."
    )
    status: str = Field(
        description="`proposed` (more users must vote), `active`, `exhausted` (no uses are left), `expired` or `revoked`."
    )
    max_uses: int = added_field(0, "Number of further calls that the temporary approval allows in total.")
    uses_left: int = Field(description="Number of calls that are still allowed.")
    duration_seconds: int = added_field(
        0, "Duration in seconds. The duration begins when enough users have voted."
    )
    context: Mapping[str, Any] = Field(
        description="Context of the approved call. Calls with the same context are allowed."
    )
    ignored_fields: Sequence[str] = added_field(
        (), "Names of the fields of `context` whose values may differ."
    )
    uses: int = Field(
        deprecated=True, description="Former name of `max_uses`, part of the response until version 0.2."
    )
    seconds: int = Field(
        deprecated=True,
        description="Former name of `duration_seconds`, part of the response until version 0.2.",
    )
    except_fields: Sequence[str] = Field(
        deprecated=True,
        description="Former name of `ignored_fields`, part of the response until version 0.2.",
    )
    required_approvals: int = Field(
        description="Number of different users who must vote for the temporary approval."
    )
    votes: Sequence[GrantVoteView] = Field(description="Votes, oldest first.")
    created_at: CreatedAt
    starts_at: datetime | None = Field(
        description="Time at which the last required user voted; null while the temporary approval is `proposed`."
    )
    expires_at: datetime = Field(
        description="Time at which the temporary approval expires. While the status is `proposed`, the time at which "
        "the proposal expires."
    )
    revoked_at: datetime | None = Field(
        description="Time at which the temporary approval was revoked, or null."
    )
    revoked_by: str | None = Field(
        description="Id of the user who revoked the temporary approval, a UUID, or null."
    )


async def serialize_grants(
    session: AsyncSession, grants: Sequence[Grant], *, credentials: bool = False
) -> list[GrantView]:
    """Return the response bodies of temporary approvals.

    With `credentials`, they also contain how each voter was authenticated, which only admins may see.
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
        credential = read_credential(vote.credential) if credentials else None
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
                "permission_id": shown_permission_id(grant),
                "status": state_of(grant, moment),
                "context": strict_json.loads_own(grant.context),
                "except_fields": json.loads(grant.except_fields),
                "votes": votes[grant.id],
            }
        )
        for grant in grants
    ]
