"""Database tables of webhooks, their secrets, events and deliveries."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, in_environment, index_where, of_user, one_of

#: Kinds of webhooks: `standard` receives signed requests as defined by Standard Webhooks, `slack` receives Slack
#: messages.
STANDARD = "standard"
SLACK = "slack"
FORMS = (STANDARD, SLACK)

#: Purposes of a webhook's secrets: signing deliveries, storing the secret URL of a Slack webhook, and verifying
#: requests from Slack.
SIGNING = "signing"
SLACK_URL = "slack_url"
SLACK_SIGNING = "slack_signing"

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
    """Webhook: a URL that receives the events of one environment of an organization.

    After a webhook was deleted, its row is kept until its deliveries are removed.
    """

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
    #: Types of events that the webhook receives, as a JSON list. Null means all types except `OPT_IN_TYPES`.
    events: str | None = Field(default=None, sa_type=Text)
    include_context: bool = False
    is_active: bool = True
    #: Reason why the gateway disabled the webhook. Null if the webhook is enabled, or a user disabled it.
    disabled_reason: str | None = Field(default=None, max_length=255)
    disabled_at: datetime | None = Field(default=None, sa_type=Timestamp)
    last_success_at: datetime | None = Field(default=None, sa_type=Timestamp)
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    updated_at: datetime | None = Field(default=None, sa_type=Timestamp)
    deleted_at: datetime | None = Field(default=None, sa_type=Timestamp)


class WebhookSecret(Table, table=True):
    """Encrypted secret of a webhook.

    When a signing secret is replaced, the former secret also signs deliveries until it expires.
    """

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
    #: Time until which a replaced secret stays valid. Null for the current secret.
    expires_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Event(Table, table=True):
    """Event that is delivered to at least one webhook. Receivers get its id in the header `webhook-id`."""

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
    #: Body of the event as JSON. Webhooks without `include_context` receive it without the `CONTEXT_FIELDS`.
    payload: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)


class Delivery(Table, table=True):
    """Delivery of one event to one webhook, with the result of the latest attempt."""

    __tablename__ = "deliveries"
    __table_args__ = (
        ForeignKeyConstraint(
            ["organization_id", "environment", "event_id"],
            ["events.organization_id", "events.environment", "events.id"],
        ),
        _of_webhook(),
        one_of("status", STATUSES),
        # The delivery worker uses these indexes to find deliveries that are due, of all webhooks or of one webhook.
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
        # The API uses these indexes to list the deliveries of a webhook.
        Index("ix_deliveries_of_webhook", "webhook_id", "created_at", "id"),
        Index("ix_deliveries_by_status", "webhook_id", "status", "created_at", "id"),
        # The retention job uses these indexes to remove old deliveries, and then events that have no deliveries left.
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
    #: Time of the next attempt. Null if the delivery succeeded or will not be attempted again.
    next_attempt_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: Time until which a gateway has reserved the delivery for itself. Null if no gateway has claimed it.
    claimed_until: datetime | None = Field(default=None, sa_type=Timestamp)
    response_code: int | None = None
    #: Short description of the latest failure. Null after a success.
    error: str | None = Field(default=None, max_length=255)
    last_attempt_at: datetime | None = Field(default=None, sa_type=Timestamp)
    delivered_at: datetime | None = Field(default=None, sa_type=Timestamp)
    created_at: datetime = Field(sa_type=Timestamp)
