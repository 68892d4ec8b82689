"""What an agent looks like on the wire (spec §2)."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, model_validator

from toolgate_service.web.bodies import Body
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

    name: Name
    description: Description | None = None


class AgentChange(Body):
    """PUT /api/agents/{agent_id}: what is not sent stays as it is."""

    name: Name | None = None
    description: Description | None = None
    status: Literal["active", "inactive"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_nulls(cls, value: object) -> object:
        if isinstance(value, dict):
            for name in ("name", "status"):
                if name in value and value[name] is None:
                    raise ValueError(f"{name} must not be null; leave it out to keep it")
        return value
