"""What the payment provider said: subscriptions, invoices, and the events that brought them."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.storage.base import Table, index_where, one_of
from toolgate_service.storage.types import Id, Timestamp

#: the words for what became of an event
APPLIED = "applied"
#: something newer was applied before
STALE = "stale"
#: no organization is linked to the event's customer
UNLINKED = "unlinked"
#: the subscription's prices buy no plan
UNPRICED = "unpriced"
OUTCOMES = (APPLIED, STALE, UNLINKED, UNPRICED)


class Subscription(Table, table=True):
    """A subscription as the provider's newest event showed it."""

    __tablename__ = "subscriptions"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        UniqueConstraint("organization_id", "provider_subscription_id"),
        # Who may owe: looked for in every round of the upkeep.
        index_where("ix_subscriptions_failing", "failing_since IS NOT NULL", "failing_since"),
        index_where("ix_subscriptions_trials", "trial_ends_at IS NOT NULL", "trial_ends_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    provider_subscription_id: str = Field(max_length=255)
    provider_customer_id: str = Field(max_length=255)
    #: the provider's prices, as JSON: which plan they buy is said by the plans of this moment
    price_ids: str = Field(sa_type=Text)
    status: str = Field(max_length=32)
    current_period_start: datetime | None = Field(default=None, sa_type=Timestamp)
    current_period_end: datetime | None = Field(default=None, sa_type=Timestamp)
    cancel_at_period_end: bool
    trial_ends_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: it ended with its trial, unpaid
    trial_expired: bool
    #: since when the provider has called it unpaid; null while it does not
    failing_since: datetime | None = Field(default=None, sa_type=Timestamp)
    #: when the provider began it
    provider_created_at: datetime = Field(sa_type=Timestamp)
    #: the provider's moment of the newest event applied, and where its kind stands among those of one moment
    provider_updated_at: datetime = Field(sa_type=Timestamp)
    provider_rank: int
    #: what the newest event says it has changed, as it was before, where that was never seen; as JSON
    unseen: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)


class Invoice(Table, table=True):
    """An invoice as the provider's newest event showed it."""

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
    #: in minor units of the currency
    amount: int = Field(sa_type=BigInteger)
    currency: str = Field(max_length=10)
    status: str = Field(max_length=32)
    invoice_pdf: str | None = Field(default=None, sa_type=Text)
    #: when its payment first failed; null while it did not, and once an operator has forgiven it
    failed_at: datetime | None = Field(default=None, sa_type=Timestamp)
    provider_updated_at: datetime = Field(sa_type=Timestamp)
    provider_rank: int
    #: when the provider made it
    created_at: datetime = Field(sa_type=Timestamp)


class ProviderEvent(Table, table=True):
    """An event that was received; its id keeps it from being applied twice. It belongs to no tenant."""

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
    #: what it says, as JSON, while it waits for its customer to be linked
    facts: str | None = Field(default=None, sa_type=Text)
    received_at: datetime = Field(sa_type=Timestamp)
