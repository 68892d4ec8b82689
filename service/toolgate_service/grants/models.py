"""Database tables of temporary approvals, which the API calls grants.

A temporary approval allows further calls of one action by one agent. It ends after a number of calls or at a fixed
time. The stored status does not change at its end; `state_of` returns the actual state.
"""

from datetime import datetime

from sqlalchemy import CheckConstraint, ColumnElement, ForeignKeyConstraint, Index, Text, UniqueConstraint
from sqlmodel import Field, col

from toolgate_service.db.models import Id, Table, Timestamp, of_agent, of_user, one_of

#: status of a temporary approval for which not enough approvers have voted yet
PROPOSED = "proposed"
ACTIVE = "active"
REVOKED = "revoked"
STATUSES = (PROPOSED, ACTIVE, REVOKED)

# states that are computed and never stored: the time `expires_at` has passed, or no uses are left
EXPIRED = "expired"
EXHAUSTED = "exhausted"


class Grant(Table, table=True):
    """Temporary approval, which allows calls whose context equals the approved context.

    The values of `except_fields` may differ, and an amount may be smaller.
    """

    __tablename__ = "grants"
    __table_args__ = (
        of_agent(),
        of_user("revoked_by"),
        UniqueConstraint("organization_id", "environment", "id"),
        # Only one temporary approval per approval request, even if two approvers propose one concurrently.
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
    #: id of the permission, or `ruled_permission_id`; not a foreign key, because the temporary approval is kept after
    #: its permission was deleted
    permission_id: str = Field(sa_type=Id)
    #: id of the approval request with which the temporary approval was proposed
    approval_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    #: context that the approvers saw in the approval request, as canonical JSON
    context: str = Field(sa_type=Text)
    #: names of the context fields whose values may differ in later calls, as a JSON list
    except_fields: str = Field(sa_type=Text)
    status: str = Field(max_length=10)
    uses: int
    uses_left: int
    #: duration in seconds; it begins when enough approvers have voted
    seconds: int
    #: approval rules of the approval request with which the temporary approval was proposed
    required_approvals: int
    separation_of_duties: bool | None = None
    #: ids of the users who created the agent or the permission, or changed the permission to allow more, as a JSON list
    makers: str | None = Field(default=None, sa_type=Text)
    #: ids of the only users who may approve, as a JSON list; null if every user with the right may approve
    approvers: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)
    starts_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: time at which the temporary approval ends; while it is proposed, the time at which its approval request expires
    expires_at: datetime = Field(sa_type=Timestamp)
    revoked_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: Id of the user who revoked the temporary approval. Null if the gateway revoked it, because its agent was disabled
    #: or deleted, its permission was deleted, or its approval request ended before enough approvers had voted.
    revoked_by: str | None = Field(default=None, sa_type=Id)


class GrantVote(Table, table=True):
    """Vote of one user for a temporary approval. Each user has at most one vote for it."""

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
    #: credential with which the user was authenticated, as a JSON object that contains ids and no secrets
    credential: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)


def state_of(grant: Grant, moment: datetime) -> str:
    """Return the state that a temporary approval has at the given time."""
    if grant.status == REVOKED:
        return REVOKED
    if grant.uses_left == 0:
        return EXHAUSTED
    return EXPIRED if grant.expires_at <= moment else grant.status


def has_state(state: str, moment: datetime) -> ColumnElement[bool]:
    """Return the SQL condition for temporary approvals that have this state at the given time."""
    if state == REVOKED:
        return col(Grant.status) == REVOKED
    if state == EXHAUSTED:
        return (col(Grant.status) != REVOKED) & (col(Grant.uses_left) == 0)
    usable = (col(Grant.status) != REVOKED) & (col(Grant.uses_left) > 0)
    if state == EXPIRED:
        return usable & (col(Grant.expires_at) <= moment)
    return usable & (col(Grant.status) == state) & (col(Grant.expires_at) > moment)
