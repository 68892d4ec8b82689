"""Several people who decide about one agent."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from support.gateway import LiveGateway, Owner
from support.insight import move_into

ACTION = "stripe.refund"
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}


@dataclass(frozen=True)
class Board:
    """An organization's admins, and an agent whose refunds some of them must approve.

    Attributes:
        people: the admins; the first created agent and permission.
        agent: its id.
        permission: its permission for `ACTION`.
    """

    people: Sequence[Owner]
    agent: str
    permission: str

    def check(self, context: object = None, **fields: object) -> dict[str, Any]:
        """Check as the agent does."""
        answer = self.people[0].check(self.agent, ACTION, context, **fields)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def ask(self, context: object = None, **fields: object) -> str:
        """Return the id of a held check's approval."""
        result = self.check(context, **fields)
        assert result["requires_approval"], result
        approval: str = result["approval_id"]
        return approval

    def allowed(self, context: object = None, **fields: object) -> bool:
        """Say whether a check passes."""
        return self.check(context, **fields) == ALLOWED

    def approve(self, approval: str, by: int = 0, **body: object) -> httpx.Response:
        """Approve as one of the people."""
        return self.people[by].http.post(f"/api/approvals/{approval}/approve", json=body)

    def approved(self, approval: str, by: int = 0, **body: object) -> dict[str, Any]:
        """Approve as one of the people, and return the approval."""
        answer = self.approve(approval, by, **body)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def deny(self, approval: str, by: int = 0, **body: object) -> httpx.Response:
        """Deny as one of the people."""
        return self.people[by].http.post(f"/api/approvals/{approval}/deny", json=body)

    def withdraw(self, approval: str) -> None:
        """Give up a request as the asking agent."""
        owner = self.people[0]
        answer = owner.http.post(f"/sdk/approvals/{approval}/cancel", headers={"X-API-Key": owner.key})
        assert answer.status_code == 200, answer.text

    def shown(self, approval: str) -> dict[str, Any]:
        """Return an approval as people see it."""
        found: dict[str, Any] = self.people[0].http.get(f"/api/approvals/{approval}").json()
        return found

    def seen_by_agent(self, approval: str) -> dict[str, Any]:
        """Return an approval as the asking agent sees it."""
        owner = self.people[0]
        headers = {"X-API-Key": owner.key}
        found: dict[str, Any] = owner.http.get(f"/sdk/approvals/{approval}", headers=headers).json()
        return found

    def change(self, **fields: object) -> None:
        """Change the permission."""
        answer = self.people[0].http.put(f"/api/permissions/{self.permission}", json=fields)
        assert answer.status_code == 200, answer.text

    def grants(self, **query: str) -> list[dict[str, Any]]:
        """Return what is allowed for a while, newest first."""
        answer = self.people[0].http.get("/api/grants", params=query)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def audited(self, resource_id: str) -> list[str]:
        """Return what the audit says happened to something, oldest first."""
        entries = self.people[0].http.get("/api/audit", params={"limit": "100"}).json()
        return [entry["kind"] for entry in reversed(entries) if entry["resource_id"] == resource_id]


@contextmanager
def board(gateway: LiveGateway, people: int = 3, **permission: object) -> Iterator[Board]:
    """Give an organization with several admins.

    Args:
        gateway: the gateway.
        people: how many.
        permission: fields of the agent's permission.
    """
    with ExitStack() as stack:
        first, *others = (stack.enter_context(Owner(gateway.url)) for _ in range(people))
        for other in others:
            move_into(gateway, other, first)
        agent = first.agent()
        made = first.permit(agent, ACTION, requires_approval=True, **permission)
        yield Board([first, *others], agent, made)
