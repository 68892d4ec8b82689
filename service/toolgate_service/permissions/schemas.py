"""Request and response bodies of the routes of permissions."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, WithJsonSchema

from toolgate_service.core.schemas import AMOUNT, WHOLE, Amount, Body, Change, ExactAction, example

Seconds = Annotated[int, Field(ge=1, le=30 * 24 * 3600), WHOLE]
People = Annotated[int, Field(ge=1, le=10), WHOLE]


class PermissionView(BaseModel):
    """Permission of an agent, in responses of the API."""

    id: str
    agent_id: str
    action: str
    requires_approval: bool
    max_amount: Annotated[Decimal, WithJsonSchema(AMOUNT)] | None
    amount_required: bool
    required_approvals: int
    separation_of_duties: bool
    approval_ttl_seconds: int | None
    created_at: datetime


class NewPermission(Body):
    """Request body of POST /api/agents/{agent_id}/permissions."""

    model_config = example(action="stripe.refund", requires_approval=True, max_amount=50)

    action: ExactAction
    requires_approval: bool = False
    max_amount: Amount | None = None
    amount_required: bool = False
    required_approvals: People = 1
    separation_of_duties: bool = False
    approval_ttl_seconds: Seconds | None = None


class PermissionChange(Change):
    """Request body of PUT /api/permissions/{permission_id}. Fields that are missing in the request stay unchanged.

    The value null removes the limit `max_amount`. For `approval_ttl_seconds`, null selects the value of the gateway's
    setting.
    """

    model_config = example(max_amount=25)

    nullable = frozenset({"max_amount", "approval_ttl_seconds"})

    requires_approval: bool | None = None
    max_amount: Amount | None = None
    amount_required: bool | None = None
    required_approvals: People | None = None
    separation_of_duties: bool | None = None
    approval_ttl_seconds: Seconds | None = None
