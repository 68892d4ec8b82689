"""An organization's webhooks, over HTTP, and what their receiver gets."""

from typing import Any

from support.gateway import Owner
from support.receiver import Got, Receiver
from support.standard_webhooks import is_signed
from support.waiting import until


class Hook:
    """A webhook that leads to a receiver.

    Attributes:
        made: what the gateway answered, with the secret.
        secret: the one that signs now.
    """

    def __init__(
        self,
        owner: Owner,
        receiver: Receiver,
        *events: str,
        environment: str = "production",
        **fields: object,
    ) -> None:
        self._owner = owner
        self._receiver = receiver
        self._scope = {"environment": environment}
        body = {"url": receiver.url} | ({"events": list(events)} if events else {}) | fields
        answer = owner.http.post("/api/webhooks", json=body, params=self._scope)
        assert answer.status_code == 201, answer.text
        self.made: dict[str, Any] = answer.json()
        self.secret: str = self.made["secret"]
        self.path = f"/api/webhooks/{self.made['id']}"

    def read(self) -> dict[str, Any]:
        """Return the webhook as the API shows it."""
        view: dict[str, Any] = self._owner.http.get(self.path, params=self._scope).json()
        return view

    def deliveries(self, **filters: object) -> list[dict[str, Any]]:
        """Return the deliveries, newest first."""
        params: dict[str, Any] = {**self._scope, **filters}
        answer = self._owner.http.get(f"{self.path}/deliveries", params=params)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def settled(self, many: int = 1) -> list[dict[str, Any]]:
        """Return the deliveries, once so many have ended and none waits."""

        def ended() -> list[dict[str, Any]]:
            found = self.deliveries()
            return found if len(found) >= many and all(one["status"] != "pending" for one in found) else []

        return until(ended)

    def post(self, path: str, status: int = 200) -> dict[str, Any]:
        """Do something with the webhook."""
        answer = self._owner.http.post(self.path + path, params=self._scope)
        assert answer.status_code == status, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def change(self, **fields: object) -> dict[str, Any]:
        """Change the webhook."""
        answer = self._owner.http.put(self.path, json=fields, params=self._scope)
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    def told(self, kind: str, many: int = 1) -> list[Got]:
        """Return what the receiver got of a kind, once there is so much; each with a valid signature."""
        found = self._receiver.wait(many, lambda one: one.event["type"] == kind)
        for got in found:
            assert is_signed(self.secret, got.headers, got.body)
        return found
