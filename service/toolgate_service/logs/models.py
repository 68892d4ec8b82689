"""Log entries, and the answers remembered for their idempotency keys (decisions §6)."""

from datetime import datetime

from sqlalchemy import Index, PrimaryKeyConstraint, Text
from sqlmodel import Field

from toolgate_service.storage.base import Table, in_environment, of_agent, one_of
from toolgate_service.storage.types import Id, Timestamp

STATUSES = ("success", "failed", "pending", "denied")


class LogEntry(Table, table=True):
    """What an agent did, or was not let do.

    The primary key is the order in which lists are read. It begins with the tenant, and it contains `created_at`, by
    whose months PostgreSQL partitions the table (`logs/months/`).
    """

    __tablename__ = "log_entries"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "created_at", "id"),
        of_agent(),
        one_of("status", STATUSES),
        # A list by several columns reads the narrowest index, and finds the others' values behind its key: what does not
        # match is never fetched.
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
    #: the context's canonical text; null when none was sent
    context: str | None = Field(default=None, sa_type=Text)
    #: the caller's if given, otherwise the address seen
    ip_address: str | None = Field(default=None, max_length=45)
    #: the address the request came from
    address_seen: str | None = Field(default=None, max_length=45)
    #: the gateway's clock
    created_at: datetime = Field(sa_type=Timestamp)
    #: the caller's clock: when it happened
    occurred_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: this and the three below are the caller's word
    decision_id: str | None = Field(default=None, max_length=255)
    approval_id: str | None = Field(default=None, max_length=255)
    call_id: str | None = Field(default=None, max_length=255)
    run_id: str | None = Field(default=None, max_length=255)
    #: the API key that recorded it
    key_id: str = Field(sa_type=Id)


class IdempotencyKey(Table, table=True):
    """A remembered answer: sent again, byte for byte, to whoever repeats the key (decisions §4, §6)."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "surface", "key"),
        in_environment(),
        one_of("surface", ("check", "log")),
        Index(None, "expires_at"),
    )

    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: ``check`` (10 minutes) or ``log`` (24 hours)
    surface: str = Field(max_length=10)
    key: str = Field(max_length=255)
    #: SHA-256 of the request's body: a repeated key with another body is counted as a mismatch
    fingerprint: str = Field(max_length=64)
    answer: bytes
    #: headers that belong to the answer, as JSON
    headers: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
