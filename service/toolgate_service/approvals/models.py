"""Tables of approval requests and votes.

States of a request:

    pending ──► approved ──► consumed
       │           ├───────► expired
       │           └───────► cancelled
       ├──────► denied
       ├──────► expired
       ├──────► cancelled
       └──────► replaced, by a request with an edited context

All states except pending and approved are final. From `expires_at` on, a pending or approved request counts as expired,
even before a background job updates its row. Therefore `state_of` and `has_state` compare `expires_at` with the time.
"""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import ColumnElement, Connection, ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlalchemy.event import listen
from sqlalchemy.orm import Mapper, object_session
from sqlalchemy.orm.attributes import get_history
from sqlmodel import Field, col

from toolgate_service.db.models import (
    ExactDecimal,
    Id,
    Table,
    Timestamp,
    index_where,
    of_agent,
    of_user,
    one_of,
)
from toolgate_service.db.pubsub import APPROVAL, announce

PENDING = "pending"
APPROVED = "approved"
DENIED = "denied"
EXPIRED = "expired"
CANCELLED = "cancelled"
REPLACED = "replaced"
CONSUMED = "consumed"
#: states that are not final
OPEN = (PENDING, APPROVED)
STATUSES = (PENDING, APPROVED, DENIED, EXPIRED, CANCELLED, REPLACED, CONSUMED)


def _of_status(name: str, status: str, column: str) -> Index:
    columns = ("organization_id", "environment", "agent_id", "action", column)
    return index_where(name, f"status = '{status}'", *columns)


class Approval(Table, table=True):
    """Request for an approver's decision about a tool call.

    An approval is bound to the agent, the permission, the action, the run and the digest of the context.
    """

    __tablename__ = "approvals"
    __table_args__ = (
        of_agent(),
        of_user("decided_by"),
        UniqueConstraint("organization_id", "environment", "id"),
        one_of("status", STATUSES),
        # Checks of the same call share one pending request, even if they arrive concurrently.
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
        # Index for the search for requests that match a check.
        Index(None, "organization_id", "environment", "agent_id", "action", "digest"),
        Index(None, "organization_id", "environment", "created_at", "id"),
        # Indexes for recent denials of an action, and for calls that consumed an approval.
        _of_status("ix_approvals_denied", DENIED, "decided_at"),
        _of_status("ix_approvals_consumed", CONSUMED, "call_id"),
        _of_status("ix_approvals_consumed_by", CONSUMED, "consumed_call_id"),
        # Indexes for lists filtered by status or by agent.
        Index("ix_approvals_by_status", "organization_id", "environment", "status", "created_at", "id"),
        Index("ix_approvals_by_agent", "organization_id", "environment", "agent_id", "created_at", "id"),
        # Index for the statistics of waiting times.
        index_where(
            "ix_approvals_decided",
            "decided_by IS NOT NULL",
            *("organization_id", "environment", "decided_at", "created_at"),
        ),
        # Index for the requests that a grant approved: they are cancelled when the grant is revoked.
        index_where("ix_approvals_by_grant", "grant_id IS NOT NULL", "grant_id"),
        # Indexes for the jobs that expire requests and send reminders, across all organizations.
        index_where("ix_approvals_running_out", "status IN ('pending', 'approved')", "expires_at"),
        index_where("ix_approvals_reminding", "status = 'pending'", "remind_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    agent_id: str = Field(sa_type=Id)
    #: id of the permission; not a foreign key, because the request remains after its permission is deleted
    permission_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    #: context as canonical JSON; never changed
    context: str = Field(sa_type=Text)
    #: SHA-256 of `context`
    digest: str = Field(max_length=64)
    #: run and call of the check; empty instead of null if missing, because a unique index treats nulls as distinct
    run_id: str = Field(default="", max_length=255)
    call_id: str = Field(default="", max_length=255)
    #: the agent's reason for the call: shown to approvers, not verified by the gateway, not part of the digest
    reason: str | None = Field(default=None, max_length=1000)
    #: time of the last check or long poll for this request
    last_asked_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: time until which a long poll waits for the decision
    waiting_until: datetime | None = Field(default=None, sa_type=Timestamp)
    status: str = Field(default=PENDING, max_length=10)
    #: id of the API key that sent the check
    key_id: str = Field(sa_type=Id)
    #: rules of the permission when the request was created; the stricter of these and the current rules applies
    required_approvals: int = 1
    separation_of_duties: bool | None = None
    #: ids of the users who created the agent, or created or loosened the permission, as a JSON list
    makers: str | None = Field(default=None, sa_type=Text)
    max_amount: Decimal | None = Field(default=None, sa_type=ExactDecimal)
    amount_required: bool | None = None
    created_at: datetime = Field(sa_type=Timestamp)
    #: while pending: deadline for the decision; once approved: deadline to consume the approval
    expires_at: datetime = Field(sa_type=Timestamp)
    #: time at which the reminder event is due; null after it was sent
    remind_at: datetime | None = Field(default=None, sa_type=Timestamp)
    reminded_at: datetime | None = Field(default=None, sa_type=Timestamp)
    decided_at: datetime | None = Field(default=None, sa_type=Timestamp)
    decided_by: str | None = Field(default=None, sa_type=Id)
    note: str | None = Field(default=None, max_length=1000)
    consumed_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: `call_id` of the check that consumed the approval; empty if the check had no `call_id`
    consumed_call_id: str = Field(default="", max_length=255)
    #: decision id of the check that consumed the approval
    decision_id: str | None = Field(default=None, sa_type=Id)
    cancelled_at: datetime | None = Field(default=None, sa_type=Timestamp)
    cancel_reason: str | None = Field(default=None, max_length=255)
    #: id of the request with the edited context that replaced this request
    replaced_by: str | None = Field(default=None, sa_type=Id)
    #: id of the original request, if this request has an edited context; only a check that sends this request's own id
    #: consumes it
    replaces: str | None = Field(default=None, sa_type=Id)
    #: id of the grant that approved this request; the votes for the grant count instead of votes for the request
    grant_id: str | None = Field(default=None, sa_type=Id)


class ApprovalVote(Table, table=True):
    """One user's decision about one approval request. Each user has at most one vote per request."""

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
    #: how the user was authenticated, as a JSON object of ids without secrets
    credential: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)


class DenialClearance(Table, table=True):
    """Time at which an admin ended a denial block. Earlier denials of the agent's action no longer count."""

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
    # Other changes of the status are not announced, because open console pages and long polls only depend on whether
    # the request is pending.
    if (PENDING in before) != (PENDING in after):
        _announce(approval, approval.id)


def _announce_vote(_mapper: Mapper[ApprovalVote], _connection: Connection, vote: ApprovalVote) -> None:
    _announce(vote, vote.approval_id)


def _announce(changed: Approval | ApprovalVote, approval_id: str) -> None:
    session = object_session(changed)
    if session is not None:
        announce(session, APPROVAL, changed.organization_id, approval_id)


# ORM listeners announce every change, so that no code path can forget the notification.
listen(Approval, "after_insert", _announce_request)
listen(Approval, "after_update", _announce_request)
listen(ApprovalVote, "after_insert", _announce_vote)


def state_of(approval: Approval, moment: datetime) -> str:
    """Return the state of an approval request at a given time."""
    if approval.status in OPEN and approval.expires_at <= moment:
        return EXPIRED
    return approval.status


def has_state(state: str, moment: datetime) -> ColumnElement[bool]:
    """Return the SQL condition for approval requests that have this state at a given time."""
    if state == EXPIRED:
        past = col(Approval.status).in_(OPEN) & (col(Approval.expires_at) <= moment)
        return past | (col(Approval.status) == EXPIRED)
    if state in OPEN:
        return (col(Approval.status) == state) & (col(Approval.expires_at) > moment)
    return col(Approval.status) == state
