"""What an agent looks like on the wire (spec §2)."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from toolgate_service.web.bodies import Body, Change, example
from toolgate_service.web.fields import Description, Name


class AgentView(BaseModel):
    """An agent."""

    id: str
    name: str
    description: str | None
    status: str
    created_at: datetime
    created_by: str


class NewAgent(Body):
    """POST /api/agents."""

    model_config = example(name="refund-bot", description="Refunds orders that customers return")

    name: Name
    description: Description | None = None


class AgentChange(Change):
    """PUT /api/agents/{agent_id}: what is not sent stays as it is; a null removes the description."""

    model_config = example(status="inactive")

    nullable = frozenset({"description"})

    name: Name | None = None
    description: Description | None = None
    status: Literal["active", "inactive"] | None = None
