"""Webhooks, the events that happened, and who was told of them (decisions §10)."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlmodel import Field

from toolgate_service.storage.base import Table, in_environment, index_where, of_user, one_of
from toolgate_service.storage.types import Id, Timestamp

#: Standard Webhooks: a signed POST to anybody's receiver
STANDARD = "standard"
SLACK = "slack"
FORMS = (STANDARD, SLACK)

#: the purpose of a secret that signs deliveries
SIGNING = "signing"

PENDING = "pending"
DELIVERED = "delivered"
FAILED = "failed"
STATUSES = (PENDING, DELIVERED, FAILED)


def _of_webhook() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["organization_id", "environment", "webhook_id"],
        ["webhooks.organization_id", "webhooks.environment", "webhooks.id"],
    )


class Webhook(Table, table=True):
    """Whom to tell, and of what. A deleted one stays until its deliveries are gone."""

    __tablename__ = "webhooks"
    __table_args__ = (
        in_environment(),
        of_user("created_by"),
        UniqueConstraint("organization_id", "environment", "id"),
        Index(None, "organization_id", "environment", "created_at", "id"),
        index_where("ix_webhooks_deleted", "deleted_at IS NOT NULL", "deleted_at"),
        one_of("kind", FORMS),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    kind: str = Field(default=STANDARD, max_length=10)
    url: str = Field(sa_type=Text)
    description: str | None = Field(default=None, max_length=1000)
    #: the kinds of events it gets, as JSON; null means all but those that must be named
    events: str | None = Field(default=None, sa_type=Text)
    include_context: bool = False
    is_active: bool = True
    #: why the gateway, not a person, made it inactive
    disabled_reason: str | None = Field(default=None, max_length=255)
    disabled_at: datetime | None = Field(default=None, sa_type=Timestamp)
    last_success_at: datetime | None = Field(default=None, sa_type=Timestamp)
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    updated_at: datetime | None = Field(default=None, sa_type=Timestamp)
    deleted_at: datetime | None = Field(default=None, sa_type=Timestamp)


class WebhookSecret(Table, table=True):
    """A sealed secret of a webhook. The one before a rotation signs beside its successor until it expires."""

    __tablename__ = "webhook_secrets"
    __table_args__ = (
        _of_webhook(),
        Index(None, "webhook_id", "purpose"),
        Index(None, "expires_at"),
        Index(
            "uq_webhook_secrets_current",
            "webhook_id",
            "purpose",
            unique=True,
            sqlite_where=text("expires_at IS NULL"),
            postgresql_where=text("expires_at IS NULL"),
        ),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    webhook_id: str = Field(sa_type=Id)
    purpose: str = Field(default=SIGNING, max_length=20)
    ciphertext: bytes
    created_at: datetime = Field(sa_type=Timestamp)
    #: null for the present one
    expires_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Event(Table, table=True):
    """What happened, as it will be told; written only where a webhook wants it. Its id is the receivers' too."""

    __tablename__ = "events"
    __table_args__ = (
        in_environment(),
        UniqueConstraint("organization_id", "environment", "id"),
        Index(None, "environment", "created_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    kind: str = Field(max_length=64)
    #: the whole body as JSON, contexts included: they are left out at sending for whoever did not ask for them
    payload: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)


class Delivery(Table, table=True):
    """One event on its way to one webhook."""

    __tablename__ = "deliveries"
    __table_args__ = (
        ForeignKeyConstraint(
            ["organization_id", "environment", "event_id"],
            ["events.organization_id", "events.environment", "events.id"],
        ),
        _of_webhook(),
        one_of("status", STATUSES),
        # What the worker looks for: is anything due, and of which webhook.
        Index(
            "ix_deliveries_due",
            "next_attempt_at",
            sqlite_where=text("status = 'pending'"),
            postgresql_where=text("status = 'pending'"),
        ),
        Index(
            "ix_deliveries_due_of_webhook",
            "webhook_id",
            "next_attempt_at",
            sqlite_where=text("status = 'pending'"),
            postgresql_where=text("status = 'pending'"),
        ),
        # Lists, in order.
        Index("ix_deliveries_of_webhook", "webhook_id", "created_at", "id"),
        Index("ix_deliveries_by_status", "webhook_id", "status", "created_at", "id"),
        # What the retention looks for, and whether an event is still needed.
        Index(None, "environment", "created_at"),
        Index(None, "event_id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    event_id: str = Field(sa_type=Id)
    webhook_id: str = Field(sa_type=Id)
    status: str = Field(default=PENDING, max_length=10)
    attempts: int = 0
    #: null once it has ended
    next_attempt_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: a gateway is at it until then
    claimed_until: datetime | None = Field(default=None, sa_type=Timestamp)
    response_code: int | None = None
    #: what went wrong at the last attempt, in a few words
    error: str | None = Field(default=None, max_length=255)
    last_attempt_at: datetime | None = Field(default=None, sa_type=Timestamp)
    delivered_at: datetime | None = Field(default=None, sa_type=Timestamp)
    created_at: datetime = Field(sa_type=Timestamp)
