"""The provider's JSON, as far as the gateway reads it: old and current API versions (decisions §11)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

#: the last second of the year 9999
LAST_SECOND = 253_402_300_799


def _moment(value: object) -> datetime:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LAST_SECOND:
        raise ValueError("must be seconds since the epoch")
    return datetime.fromtimestamp(value, UTC)


def _id_of(value: object) -> object:
    # Where the provider was asked to expand an object, it stands in its id's place.
    return value.get("id") if isinstance(value, dict) else value


Seconds = Annotated[datetime, BeforeValidator(_moment)]
ProviderId = Annotated[str, BeforeValidator(_id_of), Field(min_length=1, max_length=255)]
#: an amount in the currency's smallest coin; the bound is that of the column
MinorUnits = Annotated[int, Field(ge=-(2**63), lt=2**63)]
#: ASCII, since other letters may become more of them when they are made small
Currency = Annotated[str, Field(pattern=r"^[A-Za-z]{1,10}$")]
Status = Annotated[str, Field(min_length=1, max_length=32)]


class Data(BaseModel):
    """What an event is about."""

    object: dict[str, Any]
    #: of an update: what changed, as it was before
    previous_attributes: dict[str, Any] | None = None


class Envelope(BaseModel):
    """An event."""

    id: Annotated[str, Field(min_length=1, max_length=255)]
    type: Annotated[str, Field(min_length=1, max_length=255)]
    created: Seconds
    livemode: Annotated[bool, Field(strict=True)]
    data: Data


class Item(BaseModel):
    """One thing subscribed to. Its period stands here since the API of 2025, above it before."""

    price: ProviderId | None = None
    plan: ProviderId | None = None
    current_period_start: Seconds | None = None
    current_period_end: Seconds | None = None


class Items(BaseModel):
    """The list of items."""

    data: Sequence[Item] = ()


class SubscriptionObject(BaseModel):
    """A subscription."""

    id: ProviderId
    customer: ProviderId
    status: Status
    created: Seconds
    cancel_at_period_end: bool = False
    current_period_start: Seconds | None = None
    current_period_end: Seconds | None = None
    trial_end: Seconds | None = None
    ended_at: Seconds | None = None
    items: Items = Items()


class InvoiceObject(BaseModel):
    """An invoice."""

    id: ProviderId
    customer: ProviderId
    created: Seconds
    status: Status | None = None
    currency: Currency
    total: MinorUnits | None = None
    amount_due: MinorUnits | None = None
    amount_paid: MinorUnits | None = None
    invoice_pdf: str | None = None
