"""A client of access requests, together with the people who decide them."""

from typing import Any

import httpx

from support.arap import AccessRequestPep
from support.authzen import agent_key
from support.gateway import Owner

TOOL = {"type": "tool", "id": "stripe.refund"}
REFUND: dict[str, Any] = {
    "subject": {"type": "user", "id": "ann@example.com"},
    "action": {"name": "call", "properties": {"amount": 40}},
    "resource": TOOL,
    "context": {"ticket": "t-1", "time": "2026-11-28T12:00:00Z"},
}


class Requester(AccessRequestPep):
    """A client with the key of an agent, and the people who decide."""

    def __init__(self, owner: Owner, agent: str) -> None:
        super().__init__(owner.url, agent_key(owner, agent))
        self.owner = owner
        self.agent = agent

    def decide(self, decision: str = "approve", approval: str | None = None, **body: object) -> None:
        """Decide the newest approval request as the owner."""
        approval = approval or self.approvals()[0]["id"]
        answer = self.owner.http.post(f"/api/approvals/{approval}/{decision}", json=body)
        assert answer.status_code == 200, answer.text

    def approvals(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.owner.http.get("/api/approvals").json()
        return found

    def approved(self, access: dict[str, Any] = REFUND) -> dict[str, Any]:
        """Return the approval of an access that was requested."""
        body = self.request(access)
        self.decide()
        return self.complete(body)


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of a problem."""
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["title"]
    assert body["detail"]
    return answer.status_code, body["type"].rpartition(":")[2]
