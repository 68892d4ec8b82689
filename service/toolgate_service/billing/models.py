"""Database tables for subscriptions, invoices, and events of the payment provider."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, index_where, one_of

#: Result of processing an event: applied.
APPLIED = "applied"
#: Result of processing an event: not applied, because a newer event had been applied before.
STALE = "stale"
#: Result of processing an event: not applied, because no organization is linked to the event's customer.
UNLINKED = "unlinked"
#: Result of processing an event: the plan did not change, because no plan contains any of the subscription's prices.
UNPRICED = "unpriced"
OUTCOMES = (APPLIED, STALE, UNLINKED, UNPRICED)


class Subscription(Table, table=True):
    """Subscription of an organization, in the state that the newest event of the payment provider reported."""

    __tablename__ = "subscriptions"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        UniqueConstraint("organization_id", "provider_subscription_id"),
        # Indexes for the background job that looks for overdue payments and expired trials.
        index_where("ix_subscriptions_failing", "failing_since IS NOT NULL", "failing_since"),
        index_where("ix_subscriptions_trials", "trial_ends_at IS NOT NULL", "trial_ends_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    provider_subscription_id: str = Field(max_length=255)
    provider_customer_id: str = Field(max_length=255)
    #: The provider's price ids as a JSON list. The configuration assigns prices to plans.
    price_ids: str = Field(sa_type=Text)
    status: str = Field(max_length=32)
    current_period_start: datetime | None = Field(default=None, sa_type=Timestamp)
    current_period_end: datetime | None = Field(default=None, sa_type=Timestamp)
    cancel_at_period_end: bool
    trial_ends_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: True if the subscription ended or was paused after its trial because the customer did not pay.
    trial_expired: bool
    #: Time since which a payment is missing, as reported by the provider. Null if no payment is missing.
    failing_since: datetime | None = Field(default=None, sa_type=Timestamp)
    #: Time at which the subscription was created at the provider.
    provider_created_at: datetime = Field(sa_type=Timestamp)
    #: Time of the newest applied event. `provider_rank` orders events of different types that have this time.
    provider_updated_at: datetime = Field(sa_type=Timestamp)
    provider_rank: int
    #: Previous values of the fields that the newest event changed, as JSON. They are stored only if the row did not
    #: have these values before the event, because then an earlier event has not arrived yet.
    unseen: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)


class Invoice(Table, table=True):
    """Invoice of an organization, in the state that the newest event of the payment provider reported."""

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
    #: Amount in the currency's smallest unit, such as cents.
    amount: int = Field(sa_type=BigInteger)
    currency: str = Field(max_length=10)
    status: str = Field(max_length=32)
    invoice_pdf: str | None = Field(default=None, sa_type=Text)
    #: Time of the first failed payment. Null if no payment has failed, or if the operator waived the debt.
    failed_at: datetime | None = Field(default=None, sa_type=Timestamp)
    provider_updated_at: datetime = Field(sa_type=Timestamp)
    provider_rank: int
    #: Time at which the invoice was created at the provider.
    created_at: datetime = Field(sa_type=Timestamp)


class ProviderEvent(Table, table=True):
    """Event that the payment provider sent. Its stored id prevents the gateway from applying it twice.

    The table has no organization column, because an event can arrive before its customer is linked to an organization.
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
    #: Content of the event as JSON. It is stored only until the event's customer is linked to an organization, because
    #: the event is then applied.
    facts: str | None = Field(default=None, sa_type=Text)
    received_at: datetime = Field(sa_type=Timestamp)
