"""What an agent looks like on the wire (spec §2)."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, field_validator

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

    @field_validator("name", "status", mode="before")
    @classmethod
    def _no_null(cls, value: object) -> object:
        # A default is not validated: this sees only a null that was sent.
        if value is None:
            raise ValueError("must not be null; leave it out to keep it")
        return value
