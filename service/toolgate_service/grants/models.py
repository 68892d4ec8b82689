"""Grants: the same agent and action, so many times and for so long, without a person's word about each."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.storage.base import Table, of_agent, of_user, one_of
from toolgate_service.storage.types import Id, Timestamp

#: waits for more approvers
PROPOSED = "proposed"
ACTIVE = "active"
REVOKED = "revoked"
STATUSES = (PROPOSED, ACTIVE, REVOKED)

# What an active one is by the clock, and when it is used up.
EXPIRED = "expired"
EXHAUSTED = "exhausted"


class Grant(Table, table=True):
    """Lets calls through that equal one a person saw, but for the fields that were un-ticked."""

    __tablename__ = "grants"
    __table_args__ = (
        of_agent(),
        of_user("revoked_by"),
        UniqueConstraint("organization_id", "environment", "id"),
        # One request leads to one grant at most, also when two propose one at once.
        UniqueConstraint("organization_id", "environment", "approval_id"),
        one_of("status", STATUSES),
        CheckConstraint("uses_left >= 0 AND uses_left <= uses", name="uses_left"),
        Index("ix_grants_listed", "organization_id", "environment", "created_at", "id"),
        Index(
            "ix_grants_usable", "organization_id", "environment", "agent_id", "action", "status", "expires_at"
        ),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    agent_id: str = Field(sa_type=Id)
    #: no foreign key: the grant outlives a deleted permission, as a record
    permission_id: str = Field(sa_type=Id)
    #: the request in whose place it was given
    approval_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    #: the canonical text of the context that the approvers saw
    context: str = Field(sa_type=Text)
    #: names of the fields that may differ, as a JSON list
    except_fields: str = Field(sa_type=Text)
    status: str = Field(max_length=10)
    uses: int
    uses_left: int
    #: how long it lasts from the last approver's word on
    seconds: int
    #: the terms of the request in whose place it was given
    required_approvals: int
    separation_of_duties: bool | None = None
    #: ids of those who had created the agent, or created or loosened the permission, as a JSON list
    makers: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)
    starts_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: while proposed: until when its request waits
    expires_at: datetime = Field(sa_type=Timestamp)
    revoked_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: null when it went with its agent or permission, or never had enough approvers
    revoked_by: str | None = Field(default=None, sa_type=Id)


class GrantVote(Table, table=True):
    """One user's word for a grant; a quorum counts distinct users."""

    __tablename__ = "grant_votes"
    __table_args__ = (
        ForeignKeyConstraint(
            ["organization_id", "environment", "grant_id"],
            ["grants.organization_id", "grants.environment", "grants.id"],
        ),
        of_user("user_id"),
    )

    grant_id: str = Field(primary_key=True, sa_type=Id)
    user_id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    note: str | None = Field(default=None, max_length=1000)
    #: the credential that proved who it was, as a JSON object
    credential: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)
