"""Database tables of log entries, of stored responses for idempotency keys, and of counts of log entries."""

from datetime import datetime, timedelta

from sqlalchemy import BigInteger, Index, PrimaryKeyConstraint, Text
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, in_environment, of_agent, one_of

STATUSES = ("success", "failed", "pending", "denied")

#: time for which the response to a request with an idempotency key is stored
KEY_LIFETIME = timedelta(hours=24)


class LogEntry(Table, table=True):
    """Log entry: record of one tool call of an agent, including denied calls.

    The primary key has the order in which entries are listed: organization and environment, then time, then id. On
    PostgreSQL, the table is partitioned by the month of `created_at` (module `logs.partitions`).
    """

    __tablename__ = "log_entries"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "created_at", "id"),
        of_agent(),
        one_of("status", STATUSES),
        # Each index also contains the other columns by which entries are filtered, so that a query reads one index and
        # fetches only matching rows.
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
    #: context of the call as canonical JSON; null if the client sent no context
    context: str | None = Field(default=None, sa_type=Text)
    #: IP address that the client sent with the entry; if it sent none, the same as `address_seen`
    ip_address: str | None = Field(default=None, max_length=45)
    #: IP address from which the gateway received the request
    address_seen: str | None = Field(default=None, max_length=45)
    #: time at which the entry was stored, by the clock of the gateway or of its database
    created_at: datetime = Field(sa_type=Timestamp)
    #: time of the tool call, by the clock of the client
    occurred_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: this column and the next three contain ids that the client sent; the gateway does not verify them
    decision_id: str | None = Field(default=None, max_length=255)
    approval_id: str | None = Field(default=None, max_length=255)
    call_id: str | None = Field(default=None, max_length=255)
    run_id: str | None = Field(default=None, max_length=255)
    #: id of the API key with which the entry was sent
    key_id: str = Field(sa_type=Id)
    #: salts of the row and of its context in the transparency log, 32 hexadecimal digits each; null for rows that are
    #: older than the transparency log
    salt: str | None = Field(default=None, max_length=64)


class IdempotencyKey(Table, table=True):
    """Stored response to a request with an idempotency key. A retry with the same key receives the same response."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "surface", "key"),
        in_environment(),
        one_of("surface", ("check", "log")),
        Index(None, "expires_at"),
    )

    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: kind of request: ``check`` (the response is stored for 10 minutes) or ``log`` (24 hours)
    surface: str = Field(max_length=10)
    key: str = Field(max_length=255)
    #: SHA-256 digest of the content of the request; it shows if the same key is sent with different content
    fingerprint: str = Field(max_length=64)
    answer: bytes
    #: headers of the response, as JSON
    headers: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)


#: subject of a row of counts: all entries of an environment, the entries of one agent, or those of one action
ALL = "all"
AGENT = "agent"
ACTION = "action"
SUBJECTS = (ALL, AGENT, ACTION)

#: lengths of the periods for which entries are counted, in minutes
MINUTE = 1
HOUR = 60
DAY = 24 * HOUR

#: name of the column with the number of approval requests
HELD = "held"
#: For each status, the name of the column with the number of entries. The column `held` counts approval requests and
#: not `pending` entries, because each retry of a call that waits for an approval logs another `pending` entry.
COUNTED = {"success": "succeeded", "failed": "failed", "denied": "blocked", "pending": HELD}


class LogCount(Table, table=True):
    """Counts of the log entries in one minute or one hour.

    Each log entry increments three rows: one minute of its environment, one hour of its agent, and one hour of its
    action. Entries with the status `pending` are not counted; instead, each approval request is counted once. A
    maintenance job later adds up minutes to hours, and the hours of agents and actions to days (module `logs.counts`).
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
    #: start of the period, in minutes since 1970-01-01 UTC
    starts: int = Field(primary_key=True)
    #: id of the agent, or the action; empty in a row that counts all entries of an environment
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
        # The query for the agents or actions with the most entries on a day uses this index.
        Index("ix_day_counts_most", "organization_id", "environment", "subject", "day", "total"),
        # Use a table without rowid, which is faster to read, although updates take 2.5 times as long: only a
        # maintenance job writes to this table. `log_counts` has rowids, because every log entry changes it.
        {"sqlite_with_rowid": False},
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    environment: str = Field(primary_key=True, max_length=10)
    subject: str = Field(primary_key=True, max_length=10)
    #: id of the agent, or the action
    name: str = Field(primary_key=True, max_length=255)
    #: day, as the number of days since 1970-01-01 UTC
    day: int = Field(primary_key=True)
    succeeded: int = Field(sa_type=BigInteger)
    failed: int = Field(sa_type=BigInteger)
    blocked: int = Field(sa_type=BigInteger)
    held: int = Field(sa_type=BigInteger)
    #: sum of the four counts
    total: int = Field(sa_type=BigInteger)
