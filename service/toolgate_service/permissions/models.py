"""Database table of permissions, and the check of an amount against the limit of a permission."""

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

#: maximum length of an invalid amount in the reason for a denial; a longer value is cut off
MAX_SHOWN = 40


class Permission(Table, table=True):
    """Permission of one agent for one action, with an optional maximum amount and optional approval rules.

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
    #: if true and `max_amount` is set, the gateway denies a call whose context contains no amount
    amount_required: bool = False
    #: number of different users who must approve a call before it may run
    required_approvals: int = 1
    #: if true, users who created the agent or this permission, or changed the permission to allow more, may not approve
    #: calls
    separation_of_duties: bool = False
    #: time in seconds after which a pending approval request expires; null means the value of the gateway's setting
    approval_ttl_seconds: int | None = None
    #: ids of the users who changed the permission so that it allows more than before, as a JSON list
    loosened_by: str | None = Field(default=None, sa_type=Text)
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    updated_at: datetime | None = Field(default=None, sa_type=Timestamp)


def loosening_users(permission: Permission) -> Collection[str]:
    """Return the ids of the users who changed the permission so that it allows more than before."""
    return json.loads(permission.loosened_by) if permission.loosened_by else ()


class AmountCheck(StrEnum):
    """Checks of the amount in a call's context, in the order in which they run."""

    PRESENT = "present"
    NUMBER = "number"
    WITHIN_LIMIT = "within limit"


class AmountViolation(NamedTuple):
    """Name of the failed check of an amount, and the reason for the denial as text."""

    failed: AmountCheck
    reason: str


def find_amount_violation(
    maximum: Decimal | None,
    required: bool,  # noqa: FBT001 - callers pass two columns of a permission
    action: str,
    context: Mapping[str, object],
) -> AmountViolation | None:
    """Return the reason why the `amount` in the context of a call is not allowed; None if it is allowed.

    `maximum` and `required` are the columns `max_amount` and `amount_required` of the permission.
    """
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
    shown = describe_value(amount)
    reason = f"context.amount must be a non-negative number, not {shown}, because of {limit}"
    return AmountViolation(AmountCheck.NUMBER, reason)


def describe_value(value: object) -> str:
    """Return an invalid amount as text for the reason of a denial, cut off after `MAX_SHOWN` characters."""
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
