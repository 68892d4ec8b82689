"""Database table of permissions."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import CheckConstraint, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.core.strict_json import plain_number
from toolgate_service.db.models import ExactDecimal, Id, Table, Timestamp, of_agent, of_user

#: maximum number of characters of an invalid amount that the reason of a denial repeats
MAX_SHOWN = 40


class Permission(Table, table=True):
    """Permission of one agent for one action, optionally with a maximum amount or required approvals.

    An agent has at most one permission per action.
    """

    __tablename__ = "permissions"
    __table_args__ = (
        of_agent(),
        of_user("created_by"),
        UniqueConstraint("organization_id", "environment", "agent_id", "action"),
        CheckConstraint("required_approvals >= 1", name="required_approvals"),
        CheckConstraint("approval_ttl_seconds > 0", name="approval_ttl_seconds"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    agent_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    requires_approval: bool = False
    max_amount: Decimal | None = Field(default=None, sa_type=ExactDecimal)
    #: if true and `max_amount` is set, a check without an amount is denied
    amount_required: bool = False
    #: number of different users who must approve
    required_approvals: int = 1
    #: if true, users who created the agent, created this permission or changed it to allow more may not approve
    separation_of_duties: bool = False
    #: seconds after which a pending approval request expires; null means the gateway's setting
    approval_ttl_seconds: int | None = None
    #: ids of the users who changed the permission to allow more, as a JSON list
    loosened_by: str | None = Field(default=None, sa_type=Text)
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    updated_at: datetime | None = Field(default=None, sa_type=Timestamp)


def loosening_users(permission: Permission) -> Collection[str]:
    """Return the ids of all users who have changed the permission to allow more than before."""
    return json.loads(permission.loosened_by) if permission.loosened_by else ()


class AmountCheck(StrEnum):
    """Checks of the amount in a context, in the order in which they run."""

    PRESENT = "present"
    NUMBER = "number"
    WITHIN_LIMIT = "within limit"


class AmountViolation(NamedTuple):
    """Failed check of the amount in a context, and the reason as text."""

    failed: AmountCheck
    reason: str


def find_amount_violation(
    maximum: Decimal | None,
    required: bool,  # noqa: FBT001 - the two columns of a permission, in their order
    action: str,
    context: Mapping[str, object],
) -> AmountViolation | None:
    """Return why the amount in a context violates the limit of a permission; None if the amount is allowed."""
    if maximum is None:
        return None
    amount = context.get("amount")
    number = None
    if isinstance(amount, int | Decimal) and not isinstance(amount, bool) and amount >= 0:
        if amount <= maximum:
            return None
        number = Decimal(amount)
    limit = f"the maximum of {plain_number(maximum)} for action '{action}'"
    if number is not None:
        reason = f"Amount {plain_number(number)} is above {limit}"
        return AmountViolation(AmountCheck.WITHIN_LIMIT, reason)
    if "amount" not in context:
        if not required:
            return None
        return AmountViolation(AmountCheck.PRESENT, f"context.amount is required because of {limit}")
    shown = _describe_value(amount)
    reason = f"context.amount must be a non-negative number, not {shown}, because of {limit}"
    return AmountViolation(AmountCheck.NUMBER, reason)


def _describe_value(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return plain_number(Decimal(value))[:MAX_SHOWN]
        case str():
            return repr(value[:MAX_SHOWN])
    return "a list" if isinstance(value, list) else "an object"
