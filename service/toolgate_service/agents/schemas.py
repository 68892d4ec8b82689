"""Request and response bodies of the routes of agents and their API keys."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from toolgate_service.core.schemas import Body, Change, Description, Name, example


class AgentView(BaseModel):
    """Agent in responses of the API."""

    id: str
    name: str
    description: str | None
    status: str
    created_at: datetime
    created_by: str


class NewAgent(Body):
    """Request body of POST /api/agents."""

    model_config = example(name="refund-bot", description="Refunds orders that customers return")

    name: Name
    description: Description | None = None


class AgentChange(Change):
    """Request body of PUT /api/agents/{agent_id}.

    Fields that are missing in the request stay unchanged. The value null removes the description.
    """

    model_config = example(status="inactive")

    nullable = frozenset({"description"})

    name: Name | None = None
    description: Description | None = None
    status: Literal["active", "inactive"] | None = None


class AgentKeyView(BaseModel):
    """API key of a single agent. `api_key` is shown in full to admins and masked for other users."""

    id: str
    agent_id: str
    api_key: str
    created_at: datetime
    created_by: str | None
