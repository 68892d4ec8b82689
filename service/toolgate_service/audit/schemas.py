"""Response bodies of the audit log."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import (
    EXAMPLE_AGENT_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    CreatedAt,
    OrganizationId,
    ResourceId,
    added_field,
    example,
)


class AuditEntryView(BaseModel):
    """Audit event: a change of the organization's data, or the display of an API key."""

    model_config = example(
        id=EXAMPLE_ID,
        organization_id=EXAMPLE_ID,
        environment="production",
        type="agent.updated",
        kind="agent.updated",
        resource_id=EXAMPLE_AGENT_ID,
        user_id=EXAMPLE_USER_ID,
        user_email="ada@example.com",
        changes={"status": "inactive"},
        ip_address="203.0.113.7",
        created_at=EXAMPLE_TIME,
    )

    id: ResourceId
    organization_id: OrganizationId
    environment: str | None = Field(
        description="`production` or `test`; null if the event belongs to no environment, such as a change of the team."
    )
    type: str = added_field("", "Type of the event, such as `permission.created`.")
    kind: str = Field(description="Same value as `type`.")
    resource_id: str | None = Field(description="Id of the changed resource, or null.")
    user_id: str | None = Field(
        description="Id of the user who made the change; null if an API key, the operator or the payment provider did."
    )
    user_email: str | None = Field(
        description="Current e-mail address of the user who made the change, or null."
    )
    changes: Mapping[str, Any] | None = Field(
        description="Changed fields with their new values, without secrets."
    )
    ip_address: str | None = Field(description="IP address from which the change was made, or null.")
    created_at: CreatedAt
