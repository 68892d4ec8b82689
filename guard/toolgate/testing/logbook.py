"""The fake gateway's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import uuid4

from toolgate._capture.jsontext import exact
from toolgate.testing.answers import REQUIRED, Refusal, fields_refused
from toolgate.testing.clock import LeapingClock
from toolgate.testing.fields import Fields
from toolgate.testing.seen import Logged

__all__ = ["ORGANIZATION", "Logbook"]

_STATUSES: Final = ("success", "failed", "pending", "denied")
ORGANIZATION: Final = "00000000-0000-7000-8000-000000000000"
_REMEMBERED: Final = 24 * 3600.0
_MOST: Final = 100


class Logbook:
    """Takes entries, each key once a day.

    Args:
        clock: The gateway's.
        knows: Says whether there is an agent.
    """

    def __init__(self, clock: LeapingClock, knows: Callable[[str], bool]) -> None:
        self._clock = clock
        self._knows = knows
        self._keys: dict[str, tuple[float, dict[str, Any], str]] = {}
        self.entries: list[Logged] = []

    def add(self, body: Mapping[str, Any], key: str | None) -> tuple[dict[str, Any], dict[str, str]]:
        """Take one entry; returns it as the gateway tells it, and the answer's further headers.

        Raises:
            Refusal: 400 something is wrong with it, 404 there is no such agent.
        """
        earlier = self._keys.get(key or "")
        if earlier is not None and earlier[0] > self._clock.now():
            _, told, said = earlier
            headers = {"idempotency-replayed": "true"}
            if exact(dict(body)) != said:
                headers["idempotency-mismatch"] = "true"
            return told, headers
        entry = self._read(body)
        if not self._knows(entry.agent_id):
            raise Refusal(404, "Agent not found")
        self.entries.append(entry)
        told = {
            "id": str(uuid4()),
            "agent_id": entry.agent_id,
            "organization_id": ORGANIZATION,
            "action": entry.action,
            "status": entry.status,
            "created_at": self._clock.wire(self._clock.now()),
            "context": body.get("context"),
        }
        if key is not None:
            self._keys[key] = (self._clock.now() + _REMEMBERED, told, exact(dict(body)))
        return told, {}

    def add_many(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take many entries, each for itself.

        Raises:
            Refusal: 400, they are no list of at most a hundred.
        """
        entries = body.get("entries")
        if entries is None:
            raise fields_refused({"entries": [REQUIRED]})
        if not isinstance(entries, list):
            raise fields_refused({"entries": ["must be a list"]})
        if len(entries) > _MOST:
            raise fields_refused({"entries": [f"must hold at most {_MOST} entries, not {len(entries)}"]})
        return {"results": [self._result(entry) for entry in entries]}

    def _result(self, entry: Any) -> dict[str, Any]:
        try:
            if not isinstance(entry, dict):
                raise fields_refused({"entry": ["must be an object"]})
            fields = Fields(entry)
            key = fields.reference("idempotency_key")
            fields.finish()
            body = {name: value for name, value in entry.items() if name != "idempotency_key"}
            told, headers = self.add(body, key)
        except Refusal as refusal:
            return {"status": refusal.status, "detail": refusal.detail}
        replayed = {"replayed": True} if headers else {}
        mismatch = {"mismatch": True} if "idempotency-mismatch" in headers else {}
        return {"status": 200, "entry": told, **replayed, **mismatch}

    def _read(self, body: Mapping[str, Any]) -> Logged:
        fields = Fields(body)
        context = fields.context()
        agent_id, action = fields.text("agent_id"), fields.action()
        status = fields.choice("status", _STATUSES)
        fields.address("ip_address")
        fields.moment("occurred_at")
        fields.reference("decision_id")
        approval_id = fields.reference("approval_id")
        fields.reference("call_id")
        run_id = fields.reference("run_id")
        fields.finish()
        return Logged(action, agent_id, status, context or {}, approval_id, run_id)
