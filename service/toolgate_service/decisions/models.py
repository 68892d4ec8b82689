"""Database table of the decision log."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, Index, PrimaryKeyConstraint, Text
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, index_where

ALLOWED = "allowed"
DENIED = "denied"
APPROVAL_REQUIRED = "approval_required"
OUTCOMES = (ALLOWED, DENIED, APPROVAL_REQUIRED)


class Decision(Table, table=True):
    """Record of one decision about a tool call.

    The primary key has the order in which lists are sorted: organization and environment, then time, then id. The table
    has no foreign keys: most records are written after the response, when the agent or the permission may already be
    deleted.
    """

    __tablename__ = "decisions"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "created_at", "id"),
        # Do not use `one_of`, which creates an IN condition: SQLite needs 2 µs to evaluate IN with a list, which is a
        # fifth of the time for writing a row. Comparisons joined with OR are faster.
        CheckConstraint(" OR ".join(f"outcome = '{outcome}'" for outcome in OUTCOMES), name="outcome"),
        # Every check writes a row, so there are few indexes. Most checks are allowed and belong to no run; the partial
        # indexes do not contain the rows of these checks.
        Index("ix_decisions_by_agent", "organization_id", "environment", "agent_id", "created_at", "id"),
        index_where(
            "ix_decisions_by_run",
            "run_id IS NOT NULL",
            *("organization_id", "environment", "run_id", "created_at", "id"),
        ),
        index_where(
            "ix_decisions_by_outcome",
            f"outcome <> '{ALLOWED}'",
            *("organization_id", "environment", "outcome", "created_at", "id"),
        ),
        # A table without rowid stores the rows in the order of the primary key, which saves one index.
        {"sqlite_with_rowid": False},
    )

    #: value of the response header `X-Decision-ID`
    id: str = Field(sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: time of the check, which `id` also contains, so that a search by id can use the primary key
    created_at: datetime = Field(sa_type=Timestamp)
    #: id of the agent; null if the environment had no agent with the requested id
    agent_id: str | None = Field(default=None, sa_type=Id)
    #: beginning of the requested agent id, if no such agent existed
    requested_agent: str | None = Field(default=None, max_length=64)
    action: str = Field(max_length=255)
    #: id of the agent run, and id of the call; the client chose both
    run_id: str | None = Field(default=None, max_length=255)
    call_id: str | None = Field(default=None, max_length=255)
    #: id of the API key with which the check was sent
    key_id: str = Field(sa_type=Id)
    #: SHA-256 digest of the canonical context, to which approvals are bound
    context_digest: str = Field(max_length=64)
    #: context as JSON that distinguishes 1.0 from 1 (`dumps_typed`), for the replay of policies; null if it is too
    #: long, if it was removed, or if the gateway stores no contexts
    context: str | None = Field(default=None, sa_type=Text)
    #: version (epoch) of the environment's data with which the check was decided
    policy_revision: int | None = Field(default=None, sa_type=BigInteger)
    #: id of the agent's permission for the action; null if there was none
    permission_id: str | None = Field(default=None, sa_type=Id)
    #: id of the rule that decided; null if no rule did
    rule_id: str | None = Field(default=None, sa_type=Id)
    outcome: str = Field(max_length=20)
    #: value of the response header `X-Reason-Code`
    reason_code: str = Field(max_length=40)
    #: id of the approval request that the check created, found or consumed
    approval_id: str | None = Field(default=None, sa_type=Id)
    #: salts of the row and of its context in the transparency log, 32 hexadecimal digits each; null for rows from
    #: before the log
    salt: str | None = Field(default=None, max_length=64)
