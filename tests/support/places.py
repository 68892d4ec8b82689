"""The same questions put to the fake gateway and to the real one."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from support.gateway import PASSWORD
from support.inside import Clock, InsideGateway
from toolgate._http.messages import Request
from toolgate.testing import FakeGateway


@dataclass(frozen=True, slots=True)
class Said:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Place(ABC):
    """A gateway with one agent, and whoever administers it."""

    agent_id: str
    key: str

    @abstractmethod
    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Said:
        """Send what an agent's process sends."""

    @abstractmethod
    def permit(self, action: str, *, held: bool = False, **limits: Any) -> None:
        """Grant an action, or change what was granted."""

    @abstractmethod
    def forbid(self, action: str) -> None:
        """Take an action away."""

    @abstractmethod
    def switch(self, *, on: bool) -> None:
        """Switch the agent on or off."""

    @abstractmethod
    def approve(self, approval_id: str, **decision: Any) -> bool:
        """Approve as a person; returns whether it was taken."""

    @abstractmethod
    def deny(self, approval_id: str, **decision: Any) -> bool:
        """Refuse as a person; returns whether it was taken."""

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Let time pass."""

    def check(self, action: str, context: Any = None, **fields: Any) -> Any:
        """Check, and return what was decided."""
        said = self.asked(action, context, **fields)
        assert said.status == 200, said
        return said.body

    def asked(
        self, action: str, context: Any = None, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Said:
        """Check, and return the whole answer."""
        body = {"agent_id": self.agent_id, "action": action, "context": context, **fields}
        return self.send("POST", "/sdk/check", body, headers)

    def log(self, action: str, status: str = "success", key: str | None = None, **fields: Any) -> Said:
        """Record."""
        body = {"agent_id": self.agent_id, "action": action, "status": status, **fields}
        return self.send("POST", "/sdk/log", body, {} if key is None else {"Idempotency-Key": key})

    def approval(self, approval_id: str, wait: int = 0) -> Any:
        """Look at a request."""
        said = self.send("GET", f"/sdk/approvals/{approval_id}?wait={wait}")
        assert said.status == 200, said
        return said.body

    def held(self, action: str = "mail.send", context: Any = None, **fields: Any) -> str:
        """Ask for what is held, and return the request's id."""
        decided = self.check(action, context, **fields)
        assert decided["requires_approval"] is True, decided
        approval_id = decided["approval_id"]
        assert isinstance(approval_id, str)
        return approval_id


class FakePlace(Place):
    """The fake."""

    def __init__(self, agent_id: str = "0199a3f2-0000-7000-8000-00000000000a") -> None:
        self.fake = FakeGateway(agents=[agent_id])
        self.agent_id, self.key = agent_id, self.fake.api_key

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Said:
        content = None if body is None else json.dumps(body).encode()
        given = {"X-API-Key": self.key, "Content-Type": "application/json", **(headers or {})}
        answer = self.fake.send(Request(method, "http://fake" + path, given, content), 60)
        return Said(answer.status, answer.headers, json.loads(answer.body))

    def permit(self, action: str, *, held: bool = False, **limits: Any) -> None:
        limits = {"amount_required": False, **limits}
        (self.fake.hold if held else self.fake.allow)(action, **limits)

    def forbid(self, action: str) -> None:
        self.fake.block(action)

    def switch(self, *, on: bool) -> None:
        (self.fake.switch_on if on else self.fake.switch_off)()

    def approve(self, approval_id: str, **decision: Any) -> bool:
        return _taken(lambda: self.fake.approve(approval_id, **decision))

    def deny(self, approval_id: str, **decision: Any) -> bool:
        return _taken(lambda: self.fake.deny(approval_id, **decision))

    def advance(self, seconds: float) -> None:
        self.fake.advance(seconds)


class RealPlace(Place):
    """The real gateway's application."""

    _count = 0

    def __init__(self, gateway: InsideGateway, clock: Clock) -> None:
        self._gateway, self._clock = gateway, clock
        RealPlace._count += 1
        account = {
            "email": f"owner-{RealPlace._count}@example.test",
            "password": PASSWORD,
            "organization_name": "Acme",
        }
        self._token = {}
        self._token = {
            "Authorization": f"Bearer {self._manage('POST', '/auth/register', account)['access_token']}"
        }
        self.key = self._manage("GET", "/api/organization")["api_key"]
        self.agent_id = self._manage("POST", "/api/agents", {"name": "bot"})["id"]
        self._permissions = f"/api/agents/{self.agent_id}/permissions"

    def _manage(self, method: str, path: str, body: object = None) -> Any:
        answer = self._gateway.send(method, path, json=body, headers=self._token)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Said:
        content = None if body is None else json.dumps(body).encode()
        given = {"X-API-Key": self.key, "Content-Type": "application/json", **(headers or {})}
        answer = self._gateway.send(method, path, content=content, headers=given)
        return Said(answer.status_code, answer.headers, answer.json())

    def _find(self, action: str) -> str | None:
        found = self._manage("GET", self._permissions)
        return next((one["id"] for one in found if one["action"] == action), None)

    def permit(self, action: str, *, held: bool = False, **limits: Any) -> None:
        fields = {"requires_approval": held, **limits}
        known = self._find(action)
        if known is None:
            self._manage("POST", self._permissions, {"action": action, **fields})
        else:
            self._manage("PUT", f"/api/permissions/{known}", fields)

    def forbid(self, action: str) -> None:
        self._manage("DELETE", f"/api/permissions/{self._find(action)}")

    def switch(self, *, on: bool) -> None:
        self._manage("PUT", f"/api/agents/{self.agent_id}", {"status": "active" if on else "inactive"})

    def _decide(self, approval_id: str, how: str, decision: dict[str, Any]) -> bool:
        path = f"/api/approvals/{approval_id}/{how}"
        return self._gateway.send("POST", path, json=decision, headers=self._token).status_code == 200

    def approve(self, approval_id: str, **decision: Any) -> bool:
        return self._decide(approval_id, "approve", decision)

    def deny(self, approval_id: str, **decision: Any) -> bool:
        return self._decide(approval_id, "deny", decision)

    def advance(self, seconds: float) -> None:
        self._clock.advance(timedelta(seconds=seconds))


def _taken(decide: Any) -> bool:
    from toolgate import ConfigurationError

    try:
        decide()
    except ConfigurationError:
        return False
    return True
