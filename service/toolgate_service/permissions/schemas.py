"""Request and response bodies of the routes of permissions."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, WithJsonSchema

from toolgate_service.core.schemas import (
    AMOUNT,
    EXAMPLE_AGENT_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    WHOLE,
    AgentId,
    Amount,
    Body,
    Change,
    CreatedAt,
    ExactAction,
    ResourceId,
    example,
)

Seconds = Annotated[int, Field(ge=1, le=30 * 24 * 3600), WHOLE]
People = Annotated[int, Field(ge=1, le=10), WHOLE]


class PermissionView(BaseModel):
    """Permission of an agent, in responses of the API."""

    model_config = example(
        id=EXAMPLE_ID,
        agent_id=EXAMPLE_AGENT_ID,
        action="stripe.refund",
        requires_approval=True,
        max_amount=50,
        amount_required=True,
        required_approvals=1,
        separation_of_duties=False,
        approval_ttl_seconds=None,
        created_at=EXAMPLE_TIME,
    )

    id: ResourceId
    agent_id: AgentId
    action: str = Field(description="Action that the agent may perform, such as `stripe.refund`.")
    requires_approval: bool = Field(description="True if every call needs an approval.")
    max_amount: Annotated[Decimal, WithJsonSchema(AMOUNT)] | None = Field(
        description="Maximum `context.amount` of a call, in the unit that the tool uses; null if there is no maximum."
    )
    amount_required: bool = Field(
        description="True if calls without `context.amount` are denied. It has an effect only with `max_amount`."
    )
    required_approvals: int = Field(description="Number of different users who must approve a call.")
    separation_of_duties: bool = Field(
        description="True if the creators of the agent and of the permission cannot approve calls with this "
        "permission."
    )
    approval_ttl_seconds: int | None = Field(
        description="Time in seconds in which a request must be decided; null if the gateway's setting applies."
    )
    created_at: CreatedAt


class NewPermission(Body):
    """Request body of POST /api/agents/{agent_id}/permissions."""

    model_config = example(action="stripe.refund", requires_approval=True, max_amount=50)

    action: ExactAction = Field(
        description="Action that the agent may perform, such as `stripe.refund`: 1-255 visible ASCII characters "
        "without the wildcards `*` and `?`. Actions are case-sensitive."
    )
    requires_approval: bool = Field(default=False, description="True if every call needs an approval.")
    max_amount: Amount | None = Field(
        default=None,
        description="Maximum `context.amount` of a call, in the unit that the tool uses. Amounts are compared without rounding.",
    )
    amount_required: bool = Field(
        default=False,
        description="True to deny calls without `context.amount`. It has an effect only with `max_amount`.",
    )
    required_approvals: People = Field(
        default=1, description="Number of different users who must approve a call, 1-10."
    )
    separation_of_duties: bool = Field(
        default=False,
        description="True if the creators of the agent and of the permission must not approve calls with this "
        "permission.",
    )
    approval_ttl_seconds: Seconds | None = Field(
        default=None,
        description="Time in seconds in which a request must be decided, at most 2,592,000 (30 days). By default, the "
        "gateway's setting applies.",
    )


class PermissionChange(Change):
    """Request body of PUT /api/permissions/{permission_id}. Fields that are missing in the request stay unchanged.

    The value null removes the limit `max_amount`. For `approval_ttl_seconds`, null selects the value of the gateway's
    setting.
    """

    model_config = example(max_amount=25)

    nullable = frozenset({"max_amount", "approval_ttl_seconds"})

    requires_approval: bool | None = Field(default=None, description="True if every call needs an approval.")
    max_amount: Amount | None = Field(
        default=None, description="Maximum `context.amount` of a call; null removes the maximum."
    )
    amount_required: bool | None = Field(
        default=None, description="True to deny calls without `context.amount`, if there is a `max_amount`."
    )
    required_approvals: People | None = Field(
        default=None, description="Number of different users who must approve a call, 1-10."
    )
    separation_of_duties: bool | None = Field(
        default=None,
        description="True if the creators of the agent and of the permission must not approve calls with this "
        "permission.",
    )
    approval_ttl_seconds: Seconds | None = Field(
        default=None,
        description="Time in seconds in which a request must be decided, at most 2,592,000 (30 days); null selects the "
        "gateway's setting.",
    )
