"""A client so light that a test may have many: one connection, JSON in and out, no retries."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from support.gateway import Owner


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    def json(self) -> Any:
        """Return the body's value."""
        return json.loads(self.raw)


class Wire:
    """An agent's connection to the gateway, in a `with` block."""

    def __init__(self, url: str, key: str, token: str | None = None) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
        self._headers = {"X-API-Key": key, "Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def of(cls, owner: Owner, url: str | None = None) -> "Wire":
        """Connect with an organization's key and its admin's token, to another gateway if one is named."""
        return cls(url or owner.url, owner.key, owner.token)

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Heard:
        """Send one request.

        Raises:
            OSError: the gateway is gone.
            http.client.HTTPException: it went while it answered.
        """
        payload = None if body is None else json.dumps(body).encode()
        return self.send_raw(method, path, payload, headers)

    def send_raw(
        self, method: str, path: str, payload: bytes | None, headers: Mapping[str, str] | None = None
    ) -> Heard:
        """Send one request whose body is written already."""
        self._connection.request(method, path, payload, self._headers | dict(headers or {}))
        answer = self._connection.getresponse()
        return Heard(answer.status, answer.headers, answer.read())

    def log(
        self,
        agent_id: str,
        action: str,
        *,
        key: str | None = None,
        status: str = "success",
        **context: object,
    ) -> Heard:
        """Record an outcome, under an idempotency key if one is given."""
        body = {"agent_id": agent_id, "action": action, "status": status, "context": context}
        return self.send("POST", "/sdk/log", body, {} if key is None else {"Idempotency-Key": key})

    def check(self, agent_id: str, action: str, **context: object) -> Heard:
        """Ask whether the agent may."""
        return self.send("POST", "/sdk/check", {"agent_id": agent_id, "action": action, "context": context})

    def allowed(self, agent_id: str, action: str, **context: object) -> bool:
        """Ask, and return the answer alone."""
        answer = self.check(agent_id, action, **context)
        assert answer.status == 200, answer.raw
        allowed = answer.json()["allowed"]
        assert isinstance(allowed, bool)
        return allowed

    def entries(self, action: str) -> list[dict[str, Any]]:
        """Read every log entry of an action, page after page."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.send("GET", f"/api/logs?action={action}&limit=100&offset={len(found)}")
            assert page.status == 200, page.raw
            found += page.json()
            if len(page.json()) < 100:
                return found

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: what a client sees when the gateway is killed under its hands
GONE = (OSError, http.client.HTTPException)
