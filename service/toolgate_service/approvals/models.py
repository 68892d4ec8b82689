"""Database tables of approval requests and of the votes of approvers.

States of a request:

    pending ──► approved ──► consumed
       │           ├───────► expired
       │           └───────► cancelled
       ├──────► denied
       ├──────► expired
       ├──────► cancelled
       └──────► replaced (an approver edited the context in a new request)

All states except pending and approved are final. From the time `expires_at` on, a pending or approved request counts as
expired, even if the background job has not updated its row yet. Therefore `state_of` and `has_state` compare
`expires_at` with the current time.
"""

from datetime import datetime
from decimal import Decimal
from uuid import UUID, uuid5

from sqlalchemy import ColumnElement, Connection, ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlalchemy.event import listen
from sqlalchemy.orm import Mapper, object_session
from sqlalchemy.orm.attributes import get_history
from sqlmodel import Field, col

from toolgate_service.core.clock import utcnow
from toolgate_service.db.database import NOW
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
from toolgate_service.db.pubsub import APPROVAL as APPROVAL_CHANNEL
from toolgate_service.db.pubsub import announce
from toolgate_service.transparency.chunks import log_changes
from toolgate_service.transparency.leaves import (
    APPROVAL,
    APPROVAL_COLUMNS,
    COLUMNS,
    SALT_DIGITS,
    SHOWN_COLUMNS,
    VOTE,
    Leaf,
    build_leaf,
    new_salt,
    new_salts,
    row_digest,
    salted,
    write_object,
)

PENDING = "pending"
APPROVED = "approved"
DENIED = "denied"
EXPIRED = "expired"
CANCELLED = "cancelled"
REPLACED = "replaced"
CONSUMED = "consumed"
#: states that are not final: a request in one of them can still change
OPEN = (PENDING, APPROVED)
STATUSES = (PENDING, APPROVED, DENIED, EXPIRED, CANCELLED, REPLACED, CONSUMED)


#: id that the API shows instead of `permission_id` if no permission covers the call
NO_PERMISSION = "00000000-0000-0000-0000-000000000000"
_RULED = UUID("6f1d1c7e-3c0a-5d8b-9a55-0c6b3f1e2d47")


def ruled_permission_id(action: str) -> str:
    """Return the value of `permission_id` for calls that need an approval because of a rule, and have no permission.

    Each action has a different value, because requests and temporary approvals are looked up by this column.
    """
    return str(uuid5(_RULED, action))


def _of_status(name: str, status: str, column: str) -> Index:
    columns = ("organization_id", "environment", "agent_id", "action", column)
    return index_where(name, f"status = '{status}'", *columns)


class Approval(Table, table=True):
    """Request for the decision of an approver about a tool call.

    An approval is valid only for the same agent, permission, action, run and context.
    """

    __tablename__ = "approvals"
    __table_args__ = (
        of_agent(),
        of_user("decided_by"),
        UniqueConstraint("organization_id", "environment", "id"),
        one_of("status", STATUSES),
        # Unique index, because checks of the same call share one pending request, even if they arrive concurrently.
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
        # Index for the query that finds approval requests for a checked call.
        Index(None, "organization_id", "environment", "agent_id", "action", "digest"),
        Index(None, "organization_id", "environment", "created_at", "id"),
        # Indexes for recent rejections of an action, and for the calls that consumed an approval.
        _of_status("ix_approvals_denied", DENIED, "decided_at"),
        _of_status("ix_approvals_consumed", CONSUMED, "call_id"),
        _of_status("ix_approvals_consumed_by", CONSUMED, "consumed_call_id"),
        # Indexes for lists of requests that are filtered by state or by agent.
        Index("ix_approvals_by_status", "organization_id", "environment", "status", "created_at", "id"),
        Index("ix_approvals_by_agent", "organization_id", "environment", "agent_id", "created_at", "id"),
        # Index for the statistics about the waiting times of requests.
        index_where(
            "ix_approvals_decided",
            "decided_by IS NOT NULL",
            *("organization_id", "environment", "decided_at", "created_at"),
        ),
        # Index for the requests that a temporary approval approved; they are cancelled when it is revoked.
        index_where("ix_approvals_by_grant", "grant_id IS NOT NULL", "grant_id"),
        # Indexes for the background jobs that expire requests and send reminders for all organizations.
        index_where("ix_approvals_running_out", "status IN ('pending', 'approved')", "expires_at"),
        index_where("ix_approvals_reminding", "status = 'pending'", "remind_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    agent_id: str = Field(sa_type=Id)
    #: id of the permission, or `ruled_permission_id`; not a foreign key, because the request remains after the
    #: permission is deleted
    permission_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    #: context of the call as canonical JSON; it is never changed
    context: str = Field(sa_type=Text)
    #: SHA-256 digest of the column `context`
    digest: str = Field(max_length=64)
    #: ids of the run and of the call that were sent with the check; a missing id is stored as an empty string, because
    #: a unique index treats nulls as distinct
    run_id: str = Field(default="", max_length=255)
    call_id: str = Field(default="", max_length=255)
    #: reason for the call that the agent sent; shown to approvers, not verified by the gateway and not part of the
    #: digest
    reason: str | None = Field(default=None, max_length=1000)
    #: time at which the agent last sent a check or a long poll for this request
    last_asked_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: time until which a client waits for the decision with a long poll
    waiting_until: datetime | None = Field(default=None, sa_type=Timestamp)
    status: str = Field(default=PENDING, max_length=10)
    #: id of the API key with which the check was sent
    key_id: str = Field(sa_type=Id)
    #: approval rules that the permission had when the request was created; if the current rules of the permission are
    #: stricter, the current rules apply
    required_approvals: int = 1
    separation_of_duties: bool | None = None
    #: JSON list with the ids of the users who created the agent or the permission, or changed the permission to allow
    #: more; with separation of duties, they may not approve
    makers: str | None = Field(default=None, sa_type=Text)
    #: ids of the only users who may approve, as a JSON list; null if every user with the right may approve
    approvers: str | None = Field(default=None, sa_type=Text)
    max_amount: Decimal | None = Field(default=None, sa_type=ExactDecimal)
    amount_required: bool | None = None
    created_at: datetime = Field(sa_type=Timestamp)
    #: time until which a pending request can be decided, or an approved request can be used
    expires_at: datetime = Field(sa_type=Timestamp)
    #: time at which the reminder event must be sent; null after it was sent
    remind_at: datetime | None = Field(default=None, sa_type=Timestamp)
    reminded_at: datetime | None = Field(default=None, sa_type=Timestamp)
    decided_at: datetime | None = Field(default=None, sa_type=Timestamp)
    decided_by: str | None = Field(default=None, sa_type=Id)
    note: str | None = Field(default=None, max_length=1000)
    consumed_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: `call_id` of the check that consumed the approval; empty if the check contained no `call_id`
    consumed_call_id: str = Field(default="", max_length=255)
    #: id of the decision that allowed the call for which the approval was consumed
    decision_id: str | None = Field(default=None, sa_type=Id)
    cancelled_at: datetime | None = Field(default=None, sa_type=Timestamp)
    cancel_reason: str | None = Field(default=None, max_length=255)
    #: if an approver edited the context of this request: id of the new request that contains the edited context
    replaced_by: str | None = Field(default=None, sa_type=Id)
    #: if this request contains an edited context: id of the original request; only a check that sends the id of this
    #: request can consume it
    replaces: str | None = Field(default=None, sa_type=Id)
    #: id of the temporary approval that approved this request; its voters count as the approvers of the request
    grant_id: str | None = Field(default=None, sa_type=Id)
    #: id of the rule that required the approval when the request was created; null if no rule required it
    rule_id: str | None = Field(default=None, sa_type=Id)
    #: id of the budget that did not cover the call when the request was created; null if no budget required the
    #: approval
    budget_id: str | None = Field(default=None, sa_type=Id)
    #: salts of the row and of its context in the transparency log, 32 hexadecimal digits each; null for rows from
    #: before the log
    salt: str | None = Field(default=None, max_length=64)


class ApprovalVote(Table, table=True):
    """Decision of one user about one approval request. Each user has at most one vote per request."""

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
    #: credential with which the user was authenticated, as a JSON object that contains ids and no secrets
    credential: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)
    #: salt of the row in the transparency log, 32 hexadecimal digits; null for rows from before the log
    salt: str | None = Field(default=None, max_length=32)


class DenialClearance(Table, table=True):
    """Time at which an admin ended the denial block of an agent's action.

    A denial block stops an action that approvers rejected repeatedly. Rejections before this time no longer count.
    """

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
    # Announce the change only if the request becomes pending or ceases to be pending: console pages and long polls,
    # which receive the announcement, do not depend on other states.
    if (PENDING in before) != (PENDING in after):
        _announce(approval, approval.id)


def _announce_vote(_mapper: Mapper[ApprovalVote], _connection: Connection, vote: ApprovalVote) -> None:
    _announce(vote, vote.approval_id)


def _announce(changed: Approval | ApprovalVote, approval_id: str) -> None:
    session = object_session(changed)
    if session is not None:
        announce(session, APPROVAL_CHANNEL, changed.organization_id, approval_id)


# ORM listeners announce every change, so that no code path can omit the notification.
listen(Approval, "after_insert", _announce_request)
listen(Approval, "after_update", _announce_request)
listen(ApprovalVote, "after_insert", _announce_vote)


def _approval_leaf(approval: Approval) -> tuple[Leaf, str] | None:
    """Return the transparency log's leaf for the new state of a request, and the id of the request.

    Return None if the state did not change, or if the request is older than the transparency log.
    """
    if not get_history(approval, "status").added:
        return None
    session = object_session(approval)
    salt, state = approval.salt or "", approval.status
    # Requests from before the transparency log have no salts, so their digests cannot be computed.
    if len(salt) != 2 * SALT_DIGITS or session is None:
        return None
    columns = APPROVAL_COLUMNS[state]
    shown = write_object(SHOWN_COLUMNS, [getattr(approval, name) for name in SHOWN_COLUMNS])
    leaf = build_leaf(
        APPROVAL,
        approval.organization_id,
        approval.environment,
        approval.created_at if state == PENDING else session.info.get(NOW) or utcnow(),
        id=approval.id,
        agent=approval.agent_id,
        action=approval.action,
        state=state,
        by=approval.decided_by if state in {APPROVED, DENIED, REPLACED} else None,
        decision=approval.decision_id if state == CONSUMED else None,
        shown=salted(salt[SALT_DIGITS:], shown),
        digest=salted(
            salt[:SALT_DIGITS], write_object(columns, [getattr(approval, name) for name in columns])
        ),
    )
    return leaf, approval.id


def _vote_leaf(vote: ApprovalVote) -> tuple[Leaf, str]:
    leaf = build_leaf(
        VOTE,
        vote.organization_id,
        vote.environment,
        vote.created_at,
        id=vote.approval_id,
        by=vote.user_id,
        outcome=vote.decision,
        digest=row_digest(VOTE, [getattr(vote, name) for name in COLUMNS[VOTE]], vote.salt or ""),
    )
    return leaf, vote.approval_id


log_changes(Approval, new_salts, _approval_leaf)
log_changes(ApprovalVote, new_salt, _vote_leaf)


def state_of(approval: Approval, moment: datetime) -> str:
    """Return the state that an approval request has at the given time."""
    if approval.status in OPEN and approval.expires_at <= moment:
        return EXPIRED
    return approval.status


def has_state(state: str, moment: datetime) -> ColumnElement[bool]:
    """Return the SQL condition for approval requests that have this state at the given time."""
    if state == EXPIRED:
        past = col(Approval.status).in_(OPEN) & (col(Approval.expires_at) <= moment)
        return past | (col(Approval.status) == EXPIRED)
    if state in OPEN:
        return (col(Approval.status) == state) & (col(Approval.expires_at) > moment)
    return col(Approval.status) == state
