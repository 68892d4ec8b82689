"""Approvals: a held check waiting for a person, and what became of it (decisions §5)."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import Connection, ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlalchemy.event import listen
from sqlalchemy.orm import Mapper, object_session
from sqlalchemy.orm.attributes import get_history
from sqlmodel import Field

from toolgate_service.storage.base import Table, index_where, of_agent, of_user, one_of
from toolgate_service.storage.notices import APPROVAL, announce
from toolgate_service.storage.types import ExactDecimal, Id, Timestamp

PENDING = "pending"
APPROVED = "approved"
DENIED = "denied"
EXPIRED = "expired"
CANCELLED = "cancelled"
REPLACED = "replaced"
CONSUMED = "consumed"
#: waiting for a decision, or to be used
OPEN = (PENDING, APPROVED)
STATUSES = (PENDING, APPROVED, DENIED, EXPIRED, CANCELLED, REPLACED, CONSUMED)


def _of_status(name: str, status: str, column: str) -> Index:
    columns = ("organization_id", "environment", "agent_id", "action", column)
    return index_where(name, f"status = '{status}'", *columns)


class Approval(Table, table=True):
    """One held check: bound to agent, permission, action, run and the digest of its context."""

    __tablename__ = "approvals"
    __table_args__ = (
        of_agent(),
        of_user("decided_by"),
        UniqueConstraint("organization_id", "environment", "id"),
        one_of("status", STATUSES),
        # The same held check, repeated while pending, is one request: also when two ask at once.
        Index(
            "uq_approvals_pending",
            "organization_id",
            "environment",
            "agent_id",
            "permission_id",
            "digest",
            "run_id",
            "call_id",
            unique=True,
            sqlite_where=text("status = 'pending'"),
            postgresql_where=text("status = 'pending'"),
        ),
        # What a held check looks for: requests of this agent and action with this digest.
        Index(None, "organization_id", "environment", "agent_id", "action", "digest"),
        Index(None, "organization_id", "environment", "created_at", "id"),
        # What stands against a held check: recent denials of the action, and a call that was let through.
        _of_status("ix_approvals_denied", DENIED, "decided_at"),
        _of_status("ix_approvals_consumed", CONSUMED, "call_id"),
        _of_status("ix_approvals_consumed_by", CONSUMED, "consumed_call_id"),
        # Lists by status and by agent, in order.
        Index("ix_approvals_by_status", "organization_id", "environment", "status", "created_at", "id"),
        Index("ix_approvals_by_agent", "organization_id", "environment", "agent_id", "created_at", "id"),
        # What people decided, and how long it had waited.
        index_where(
            "ix_approvals_decided",
            "decided_by IS NOT NULL",
            *("organization_id", "environment", "decided_at", "created_at"),
        ),
        # What was approved by a grant, and ends with it.
        index_where("ix_approvals_by_grant", "grant_id IS NOT NULL", "grant_id"),
        # What the expiry job looks for, and the one that reminds: in all organizations, and so for nobody else.
        index_where("ix_approvals_running_out", "status IN ('pending', 'approved')", "expires_at"),
        index_where("ix_approvals_reminding", "status = 'pending'", "remind_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    agent_id: str = Field(sa_type=Id)
    #: no foreign key: the request outlives a deleted permission, as a record
    permission_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    #: the context's canonical text; written once, never changed
    context: str = Field(sa_type=Text)
    #: SHA-256 of `context`
    digest: str = Field(max_length=64)
    #: empty when none was sent: a null would make two equal requests distinct in the unique index
    run_id: str = Field(default="", max_length=255)
    call_id: str = Field(default="", max_length=255)
    #: reason that the agent gave: shown to approvers, not verified, not part of the digest
    reason: str | None = Field(default=None, max_length=1000)
    #: the last check or long poll for this request
    last_asked_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: until when a long poll waits for the decision
    waiting_until: datetime | None = Field(default=None, sa_type=Timestamp)
    status: str = Field(default=PENDING, max_length=10)
    #: the API key that asked
    key_id: str = Field(sa_type=Id)
    #: the terms of its permission when it was asked; a decision is judged by the stricter of these and the current ones
    required_approvals: int = 1
    separation_of_duties: bool | None = None
    #: ids of those who had created the agent, or created or loosened the permission, as a JSON list
    makers: str | None = Field(default=None, sa_type=Text)
    max_amount: Decimal | None = Field(default=None, sa_type=ExactDecimal)
    amount_required: bool | None = None
    created_at: datetime = Field(sa_type=Timestamp)
    #: while pending: until when it waits; once approved: until when it may be used
    expires_at: datetime = Field(sa_type=Timestamp)
    #: from when on people are reminded; null once they were
    remind_at: datetime | None = Field(default=None, sa_type=Timestamp)
    reminded_at: datetime | None = Field(default=None, sa_type=Timestamp)
    decided_at: datetime | None = Field(default=None, sa_type=Timestamp)
    decided_by: str | None = Field(default=None, sa_type=Id)
    note: str | None = Field(default=None, max_length=1000)
    consumed_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: the call that used it up; empty when it named none
    consumed_call_id: str = Field(default="", max_length=255)
    #: the decision that let the action through
    decision_id: str | None = Field(default=None, sa_type=Id)
    cancelled_at: datetime | None = Field(default=None, sa_type=Timestamp)
    cancel_reason: str | None = Field(default=None, max_length=255)
    #: the request with an edited context that took this one's place
    replaced_by: str | None = Field(default=None, sa_type=Id)
    #: the request whose place this one took: it answers only to its own id
    replaces: str | None = Field(default=None, sa_type=Id)
    #: the grant by which it was approved, whose votes count then instead of its own
    grant_id: str | None = Field(default=None, sa_type=Id)


class ApprovalVote(Table, table=True):
    """One user's decision about one request; a quorum counts distinct users."""

    __tablename__ = "approval_votes"
    __table_args__ = (
        ForeignKeyConstraint(
            ["organization_id", "environment", "approval_id"],
            ["approvals.organization_id", "approvals.environment", "approvals.id"],
        ),
        of_user("user_id"),
        one_of("decision", (APPROVED, DENIED)),
    )

    approval_id: str = Field(primary_key=True, sa_type=Id)
    user_id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    decision: str = Field(max_length=10)
    note: str | None = Field(default=None, max_length=1000)
    #: the credential that proved who it was, as a JSON object
    credential: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)


class DenialClearance(Table, table=True):
    """An admin's word that earlier denials of an agent's action no longer block it."""

    __tablename__ = "denial_clearances"
    __table_args__ = (of_agent(), of_user("cleared_by"))

    agent_id: str = Field(primary_key=True, sa_type=Id)
    action: str = Field(primary_key=True, max_length=255)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    cleared_by: str = Field(sa_type=Id)
    cleared_at: datetime = Field(sa_type=Timestamp)


def _announce_request(_mapper: Mapper[Approval], _connection: Connection, approval: Approval) -> None:
    after, _, before = get_history(approval, "status")
    # What begins to wait, and what waits no more; nobody waits for anything else to happen to one.
    if (PENDING in before) != (PENDING in after):
        _announce(approval, approval.id)


def _announce_vote(_mapper: Mapper[ApprovalVote], _connection: Connection, vote: ApprovalVote) -> None:
    _announce(vote, vote.approval_id)


def _announce(changed: Approval | ApprovalVote, approval_id: str) -> None:
    session = object_session(changed)
    if session is not None:
        announce(session, APPROVAL, changed.organization_id, approval_id)


# Here, and not where each change is made: none can be forgotten.
listen(Approval, "after_insert", _announce_request)
listen(Approval, "after_update", _announce_request)
listen(ApprovalVote, "after_insert", _announce_vote)
