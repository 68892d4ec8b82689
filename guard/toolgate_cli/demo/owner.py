"""The person of the demo: registers, grants, reads the record."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolgate_cli.management import Management

EMAIL = "owner@shop.example"
AGENT = "shop-assistant"
PAYING = "stripe.refund"
MAX_REFUND = 100


@dataclass(frozen=True, slots=True)
class Owner:
    """The admin of the demo's organization."""

    url: str
    password: str
    api_key: str
    management: Management

    @classmethod
    def register(cls, url: str) -> "Owner":
        """Found the organization."""
        password = secrets.token_urlsafe(16)
        founding = {"email": EMAIL, "password": password, "organization_name": "A small shop"}
        token = Management(url).post("/auth/register", founding)["access_token"]
        management = Management(url, token)
        return cls(url, password, management.get("/api/organization")["api_key"], management)

    def set_up_agent(self) -> str:
        """Create the agent, grant it two actions, and return its id. Mail is granted to nobody."""
        agent_id: str = self.management.post("/api/agents", {"name": AGENT})["id"]
        permissions = f"/api/agents/{agent_id}/permissions"
        refund = {"action": PAYING, "max_amount": MAX_REFUND, "amount_required": True}
        self.management.post(permissions, refund)
        self.management.post(permissions, {"action": "file.delete", "requires_approval": True})
        return agent_id

    def read_log(self) -> list[dict[str, Any]]:
        """Return the log, oldest first."""
        entries: list[dict[str, Any]] = self.management.get("/api/logs", {"limit": 100})
        return entries[::-1]

    def read_approvals(self) -> list[dict[str, Any]]:
        """Return the approvals."""
        approvals: list[dict[str, Any]] = self.management.get("/api/approvals")
        return approvals

    def leave_note(self, folder: Path, agent_id: str) -> None:
        """Write down how to get into what is kept, for its owner's eyes only."""
        note = {"email": EMAIL, "password": self.password, "api_key": self.api_key, "agent_id": agent_id}
        path = folder / "demo.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(note, indent=2) + "\n")
