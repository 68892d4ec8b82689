"""The person of the demo: registers, grants, approves after a fresh login, reads the record."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolgate.cli.demo.screen import Screen
from toolgate.cli.management import Management, ManagementError

EMAIL = "owner@shop.example"
AGENT = "shop-assistant"
MAX_REFUND = 100

#: seconds between two looks at what waits
LOOK = 0.2


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
        refund = {"action": "stripe.refund", "max_amount": MAX_REFUND, "amount_required": True}
        self.management.post(permissions, refund)
        self.management.post(permissions, {"action": "file.delete", "requires_approval": True})
        return agent_id

    @contextmanager
    def approving(self, screen: Screen) -> Iterator[None]:
        """Approve what waits, with a login of its own for each decision, while the agent works."""
        over = threading.Event()
        thread = threading.Thread(target=self._approve_until, args=(over, screen), name="owner")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _approve_until(self, over: threading.Event, screen: Screen) -> None:
        while not over.wait(LOOK):
            try:
                for approval in self.management.get("/api/approvals", status="pending"):
                    fresh = Management.login(self.url, EMAIL, self.password)
                    fresh.post(
                        f"/api/approvals/{approval['id']}/approve", {"note": "Old data; fine to delete."}
                    )
                    fresh.close()
                    screen.approved(EMAIL, approval)
            except ManagementError as error:
                screen.trouble(str(error))
                return

    def read_log(self) -> list[dict[str, Any]]:
        """Return the log, oldest first."""
        entries: list[dict[str, Any]] = self.management.get("/api/logs", limit=100)
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
