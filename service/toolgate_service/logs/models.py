"""Tables of log entries, of responses to requests with idempotency keys, and of counts of log entries."""

from datetime import datetime

from sqlalchemy import BigInteger, Index, PrimaryKeyConstraint, Text
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, in_environment, of_agent, one_of

STATUSES = ("success", "failed", "pending", "denied")


class LogEntry(Table, table=True):
    """Record of one tool call of an agent, or of one denied call.

    The primary key is sorted like lists of entries: by organization and environment, then time, then id. On PostgreSQL,
    the table is partitioned by the month of `created_at` (`logs/partitions.py`).
    """

    __tablename__ = "log_entries"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "created_at", "id"),
        of_agent(),
        one_of("status", STATUSES),
        # A query with several filters reads the most selective of these indexes. Each index also contains the columns
        # of the other filters, so that the database fetches only matching rows.
        Index(
            "ix_log_entries_by_agent",
            *("organization_id", "environment", "agent_id", "created_at", "id", "action", "status"),
        ),
        Index(
            "ix_log_entries_by_action",
            *("organization_id", "environment", "action", "created_at", "id", "status"),
        ),
        Index("ix_log_entries_status", "organization_id", "environment", "status", "created_at", "id"),
        {"postgresql_partition_by": "RANGE (created_at)"},
    )

    id: str = Field(sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    agent_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    status: str = Field(max_length=10)
    #: context as canonical JSON; null if none was sent
    context: str | None = Field(default=None, sa_type=Text)
    #: IP address that the caller sent, or else `address_seen`
    ip_address: str | None = Field(default=None, max_length=45)
    #: IP address from which the request came
    address_seen: str | None = Field(default=None, max_length=45)
    #: time of the entry, by the clock of the gateway or its database
    created_at: datetime = Field(sa_type=Timestamp)
    #: time of the tool call, by the caller's clock
    occurred_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: ids that the caller sent; the gateway does not verify these four columns
    decision_id: str | None = Field(default=None, max_length=255)
    approval_id: str | None = Field(default=None, max_length=255)
    call_id: str | None = Field(default=None, max_length=255)
    run_id: str | None = Field(default=None, max_length=255)
    #: id of the API key that sent the entry
    key_id: str = Field(sa_type=Id)


class IdempotencyKey(Table, table=True):
    """Response to a request with an idempotency key. A retry with the same key receives the same response."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "surface", "key"),
        in_environment(),
        one_of("surface", ("check", "log")),
        Index(None, "expires_at"),
    )

    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: kind of request: ``check`` (response stored for 10 minutes) or ``log`` (24 hours)
    surface: str = Field(max_length=10)
    key: str = Field(max_length=255)
    #: SHA-256 digest of the request's content, which detects the same key with another content
    fingerprint: str = Field(max_length=64)
    answer: bytes
    #: headers of the response, as JSON
    headers: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)


#: subjects of counts: all entries of an environment, the entries of one agent, or the entries of one action
ALL = "all"
AGENT = "agent"
ACTION = "action"
SUBJECTS = (ALL, AGENT, ACTION)

#: lengths of periods, in minutes
MINUTE = 1
HOUR = 60
DAY = 24 * HOUR

#: name of the column that counts approval requests
HELD = "held"
#: Name of the column that counts the entries of each status. `held` counts approval requests instead of `pending`
#: entries, because every retry of a call that waits for its approval logs another `pending` entry.
COUNTED = {"success": "succeeded", "failed": "failed", "denied": "blocked", "pending": HELD}


class LogCount(Table, table=True):
    """Counts of the log entries of a minute or an hour.

    Each log entry increments three rows: the minute of its environment, the hour of its agent and the hour of its
    action. Maintenance later rolls up minutes into hours, and hours of agents and actions into days (`logs/counts.py`).
    """

    __tablename__ = "log_counts"
    __table_args__ = (
        in_environment(),
        one_of("subject", SUBJECTS),
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    environment: str = Field(primary_key=True, max_length=10)
    subject: str = Field(primary_key=True, max_length=10)
    #: length of the period in minutes: 1 or 60
    span: int = Field(primary_key=True)
    #: start of the period, in minutes since the epoch
    starts: int = Field(primary_key=True)
    #: id of the agent, or the action; empty for all entries of an environment
    name: str = Field(primary_key=True, max_length=255)
    succeeded: int = Field(sa_type=BigInteger)
    failed: int = Field(sa_type=BigInteger)
    blocked: int = Field(sa_type=BigInteger)
    held: int = Field(sa_type=BigInteger)


class DayCount(Table, table=True):
    """Counts of the log entries of one agent or one action on one day (UTC)."""

    __tablename__ = "day_counts"
    __table_args__ = (
        in_environment(),
        one_of("subject", (AGENT, ACTION)),
        # Index for the search for the agents and actions with the most entries on a day.
        Index("ix_day_counts_most", "organization_id", "environment", "subject", "day", "total"),
        # A table without rowid is faster to read, but updates take 2.5 times as long. This table is read often and
        # written only by maintenance. `log_counts` is written with every log entry and therefore has rowids.
        {"sqlite_with_rowid": False},
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    environment: str = Field(primary_key=True, max_length=10)
    subject: str = Field(primary_key=True, max_length=10)
    #: id of the agent, or the action
    name: str = Field(primary_key=True, max_length=255)
    #: the day, in days since the epoch
    day: int = Field(primary_key=True)
    succeeded: int = Field(sa_type=BigInteger)
    failed: int = Field(sa_type=BigInteger)
    blocked: int = Field(sa_type=BigInteger)
    held: int = Field(sa_type=BigInteger)
    #: sum of the four counts
    total: int = Field(sa_type=BigInteger)
