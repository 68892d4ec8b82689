"""Request and response bodies of agents and their keys."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from toolgate_service.core.schemas import Body, Change, Description, Name, example


class AgentView(BaseModel):
    """Agent as returned by the API."""

    id: str
    name: str
    description: str | None
    status: str
    created_at: datetime
    created_by: str


class NewAgent(Body):
    """Body of POST /api/agents."""

    model_config = example(name="refund-bot", description="Refunds orders that customers return")

    name: Name
    description: Description | None = None


class AgentChange(Change):
    """Body of PUT /api/agents/{agent_id}. Fields that are not sent stay unchanged; null removes the description."""

    model_config = example(status="inactive")

    nullable = frozenset({"description"})

    name: Name | None = None
    description: Description | None = None
    status: Literal["active", "inactive"] | None = None


class AgentKeyView(BaseModel):
    """API key of one agent. `api_key` is shown in full to admins and masked for others."""

    id: str
    agent_id: str
    api_key: str
    created_at: datetime
    created_by: str | None
