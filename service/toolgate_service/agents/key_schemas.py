"""What an agent's key looks like on the wire (decisions §3, §9)."""

from datetime import datetime

from pydantic import BaseModel


class AgentKeyView(BaseModel):
    """A key that acts only as one agent. `api_key` is whole for admins, masked for others."""

    id: str
    agent_id: str
    api_key: str
    created_at: datetime
    created_by: str | None
