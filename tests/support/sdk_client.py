"""An organization with one agent at a gateway in this process, and requests as the SDK sends them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from support.gateway import PASSWORD
from support.inside import Clock, InsideGateway


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: Any


class SdkClient:
    """One agent, its API key, and its owner.

    Args:
        gateway: The gateway.
        clock: The gateway's clock.
    """

    _organizations = 0

    def __init__(self, gateway: InsideGateway, clock: Clock) -> None:
        self._gateway, self._clock = gateway, clock
        SdkClient._organizations += 1
        account = {
            "email": f"owner-{SdkClient._organizations}@example.test",
            "password": PASSWORD,
            "organization_name": "Acme",
        }
        self._owner_headers: dict[str, str] = {}
        token = self._manage("POST", "/auth/register", account)["access_token"]
        self._owner_headers = {"Authorization": f"Bearer {token}"}
        self.key = self._manage("GET", "/api/organization")["api_key"]
        self.agent_id = self._manage("POST", "/api/agents", {"name": "bot"})["id"]
        self._permissions = f"/api/agents/{self.agent_id}/permissions"

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request with the agent's API key."""
        content = None if body is None else json.dumps(body).encode()
        sent = {"X-API-Key": self.key, "Content-Type": "application/json", **(headers or {})}
        answer = self._gateway.send(method, path, content=content, headers=sent)
        return Response(answer.status_code, answer.headers, answer.json())

    def check(self, action: str, context: Any = None, **fields: Any) -> Any:
        """Check, and return the decision."""
        response = self.send_check(action, context, **fields)
        assert response.status == 200, response
        return response.body

    def send_check(
        self, action: str, context: Any = None, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Response:
        """Check, and return the complete response."""
        body = {"agent_id": self.agent_id, "action": action, "context": context, **fields}
        return self.send("POST", "/sdk/check", body, headers)

    def request_approval(self, action: str = "mail.send", context: Any = None, **fields: Any) -> str:
        """Check an action that requires approval, and return the id of the approval request."""
        decision = self.check(action, context, **fields)
        assert decision["requires_approval"] is True, decision
        approval_id = decision["approval_id"]
        assert isinstance(approval_id, str)
        return approval_id

    def log(self, action: str, status: str = "success", key: str | None = None, **fields: Any) -> Response:
        """Send a log entry."""
        body = {"agent_id": self.agent_id, "action": action, "status": status, **fields}
        return self.send("POST", "/sdk/log", body, {} if key is None else {"Idempotency-Key": key})

    def approval(self, approval_id: str, wait: int = 0) -> Any:
        """Return an approval request."""
        response = self.send("GET", f"/sdk/approvals/{approval_id}?wait={wait}")
        assert response.status == 200, response
        return response.body

    def permit(self, action: str, *, held: bool = False, **limits: Any) -> None:
        """Create or change a permission."""
        fields = {"requires_approval": held, **limits}
        permission_id = self._permission_id(action)
        if permission_id is None:
            self._manage("POST", self._permissions, {"action": action, **fields})
        else:
            self._manage("PUT", f"/api/permissions/{permission_id}", fields)

    def forbid(self, action: str) -> None:
        """Delete a permission."""
        self._manage("DELETE", f"/api/permissions/{self._permission_id(action)}")

    def set_active(self, *, is_active: bool) -> None:
        """Enable or disable the agent."""
        status = "active" if is_active else "inactive"
        self._manage("PUT", f"/api/agents/{self.agent_id}", {"status": status})

    def approve(self, approval_id: str, **decision: Any) -> bool:
        """Approve a request; return whether the gateway accepted the decision."""
        return self._decide(approval_id, "approve", decision)

    def deny(self, approval_id: str, **decision: Any) -> bool:
        """Reject a request; return whether the gateway accepted the decision."""
        return self._decide(approval_id, "deny", decision)

    def advance(self, seconds: float) -> None:
        """Advance the gateway's clock."""
        self._clock.advance(timedelta(seconds=seconds))

    def _manage(self, method: str, path: str, body: object = None) -> Any:
        answer = self._gateway.send(method, path, json=body, headers=self._owner_headers)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def _permission_id(self, action: str) -> str | None:
        found = self._manage("GET", self._permissions)
        return next((one["id"] for one in found if one["action"] == action), None)

    def _decide(self, approval_id: str, decision: str, body: dict[str, Any]) -> bool:
        path = f"/api/approvals/{approval_id}/{decision}"
        return self._gateway.send("POST", path, json=body, headers=self._owner_headers).status_code == 200
