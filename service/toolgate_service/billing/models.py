"""Database tables of subscriptions, invoices and received provider events."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, index_where, one_of

#: outcome of an event: the event was applied
APPLIED = "applied"
#: outcome of an event: not applied, because a newer event had been applied before
STALE = "stale"
#: outcome of an event: not applied, because no organization is linked to the event's customer
UNLINKED = "unlinked"
#: outcome of an event: the plan is unchanged, because no plan contains one of the subscription's prices
UNPRICED = "unpriced"
OUTCOMES = (APPLIED, STALE, UNLINKED, UNPRICED)


class Subscription(Table, table=True):
    """Subscription in the state that the newest event of the payment provider reported."""

    __tablename__ = "subscriptions"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        UniqueConstraint("organization_id", "provider_subscription_id"),
        # Indexes for the background job that searches for organizations with overdue payments.
        index_where("ix_subscriptions_failing", "failing_since IS NOT NULL", "failing_since"),
        index_where("ix_subscriptions_trials", "trial_ends_at IS NOT NULL", "trial_ends_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    provider_subscription_id: str = Field(max_length=255)
    provider_customer_id: str = Field(max_length=255)
    #: the provider's price ids as a JSON list; the configured plans define which plan contains which price
    price_ids: str = Field(sa_type=Text)
    status: str = Field(max_length=32)
    current_period_start: datetime | None = Field(default=None, sa_type=Timestamp)
    current_period_end: datetime | None = Field(default=None, sa_type=Timestamp)
    cancel_at_period_end: bool
    trial_ends_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: true if the subscription ended or was paused with its trial, because nothing was paid
    trial_expired: bool
    #: time since which the provider reports a missing payment; null if no payment is missing
    failing_since: datetime | None = Field(default=None, sa_type=Timestamp)
    #: time at which the provider created the subscription
    provider_created_at: datetime = Field(sa_type=Timestamp)
    #: time of the newest applied event; `provider_rank` orders the kinds of events within one second
    provider_updated_at: datetime = Field(sa_type=Timestamp)
    provider_rank: int
    #: previous values in the newest event as JSON, if they differ from the state that was stored before: in this case
    #: an earlier event has not arrived yet
    unseen: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)


class Invoice(Table, table=True):
    """Invoice in the state that the newest event of the payment provider reported."""

    __tablename__ = "invoices"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        UniqueConstraint("organization_id", "provider_invoice_id"),
        Index(None, "organization_id", "created_at", "id"),
        index_where("ix_invoices_failed", "failed_at IS NOT NULL", "failed_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    provider_invoice_id: str = Field(max_length=255)
    provider_customer_id: str = Field(max_length=255)
    #: amount in minor units of the currency, for example cents
    amount: int = Field(sa_type=BigInteger)
    currency: str = Field(max_length=10)
    status: str = Field(max_length=32)
    invoice_pdf: str | None = Field(default=None, sa_type=Text)
    #: time of the first failed payment; null if no payment failed or the operator waived it
    failed_at: datetime | None = Field(default=None, sa_type=Timestamp)
    provider_updated_at: datetime = Field(sa_type=Timestamp)
    provider_rank: int
    #: time at which the provider created the invoice
    created_at: datetime = Field(sa_type=Timestamp)


class ProviderEvent(Table, table=True):
    """Event received from the payment provider. The stored id prevents the gateway from applying an event twice.

    The table belongs to no tenant.
    """

    __tablename__ = "provider_events"
    __table_args__ = (
        one_of("outcome", OUTCOMES),
        Index(None, "provider_customer_id"),
        Index(None, "received_at"),
    )

    id: str = Field(primary_key=True, max_length=255)
    kind: str = Field(max_length=255)
    provider_customer_id: str | None = Field(default=None, max_length=255)
    provider_created_at: datetime = Field(sa_type=Timestamp)
    outcome: str = Field(max_length=20)
    #: the event's facts as JSON, stored until the customer is linked to an organization
    facts: str | None = Field(default=None, sa_type=Text)
    received_at: datetime = Field(sa_type=Timestamp)
