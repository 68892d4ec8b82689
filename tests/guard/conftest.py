"""A gateway that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from support.once import schema_copied

from toolgate import Guard

__all__ = ["schema_copied"]

KEY = "ak_" + "k3y" * 12 + "z"
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}

Reply = dict[str, Any] | httpx.Response | Exception | Callable[[], dict[str, Any]]


def _number(value: Any) -> Any:
    assert isinstance(value, Decimal)
    return int(value) if value == int(value) else float(value)


class FakeGateway:
    """Answers checks, logs and approvals from queues; an empty queue repeats the usual answer."""

    def __init__(self) -> None:
        self.check: list[Reply] = []
        self.log: list[Reply] = []
        self.approval: list[Reply] = []
        self.requests: list[httpx.Request] = []
        self.taken: list[dict[str, Any]] = []
        self.guards: list[Guard] = []
        self.headers: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path
        if path == "/sdk/check":
            reply: Reply = self.check.pop(0) if self.check else ALLOWED
        elif path == "/sdk/log":
            entry = {
                "id": "log-1",
                "organization_id": "org",
                "created_at": "now",
                **json.loads(request.content),
            }
            reply = self.log.pop(0) if self.log else entry
        elif path == "/sdk/logs":
            return self._many(json.loads(request.content, parse_float=Decimal)["entries"])
        else:
            usual = {"id": path.rpartition("/")[2], "status": "approved", "note": None}
            reply = self.approval.pop(0) if self.approval else usual
        if callable(reply):
            reply = reply()
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, httpx.Response):
            # A fresh object each time: a response is read once.
            return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)
        content = json.dumps(reply, default=_number).encode()
        return httpx.Response(200, content=content, headers={"content-type": "application/json"})

    def _many(self, entries: list[dict[str, Any]]) -> httpx.Response:
        """Answer for each entry by the queue; what is no answer for one is one for all of them."""
        results: list[dict[str, Any]] = []
        for entry in entries:
            reply: Reply = self.log.pop(0) if self.log else {"id": "log-1"}
            if callable(reply):
                reply = reply()
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, httpx.Response) and reply.status_code not in {400, 404, 413}:
                return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)
            status = reply.status_code if isinstance(reply, httpx.Response) else 200
            detail = reply.json()["detail"] if isinstance(reply, httpx.Response) else None
            results.append({"status": status, "entry": None, "detail": detail})
            if status == 200:
                self.taken.append(entry)
        return httpx.Response(200, json={"results": results}, headers=self.headers)

    def edit(self, **changes: Any) -> None:
        """Hold the next call, and have its approval edited by a person who changes the context so."""

        def edited() -> dict[str, Any]:
            return {
                "id": "appr-2",
                "status": "approved",
                "approved_context": {**self.context, **changes},
            }

        self.check = [HELD]
        self.approval = [{"id": "appr-1", "status": "replaced", "replaced_by": "appr-2"}, edited]

    def forget(self) -> None:
        """Forget what was asked and taken."""
        self.requests.clear()
        self.taken.clear()

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [
            json.loads(each.content, parse_float=Decimal) for each in self.requests if each.url.path == path
        ]

    @property
    def checks(self) -> list[dict[str, Any]]:
        return self.bodies("/sdk/check")

    @property
    def logs(self) -> list[dict[str, Any]]:
        """Entries that were sent one by one, and those that were taken, once everything that waits was sent."""
        for guard in self.guards:
            guard.flush(5)
        # Sent again under its key, as after an answer that did not come in time, an entry is one.
        once: dict[str, dict[str, Any]] = {}
        for entry in self.taken:
            once.setdefault(entry["idempotency_key"], entry)
        many = [{name: entry[name] for name in entry if name != "idempotency_key"} for entry in once.values()]
        return self.bodies("/sdk/log") + many

    @property
    def context(self) -> dict[str, Any]:
        """The context of the last check."""
        found: dict[str, Any] = self.checks[-1]["context"]
        return found


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def make_guard(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Guard]]:
    for name in ("URL", "API_KEY", "AGENT_ID", "TIMEOUT", "HTTP"):
        monkeypatch.delenv(f"TOOLGATE_{name}", raising=False)
    made: list[Guard] = []

    def make(**options: Any) -> Guard:
        given = {"agent_id": "agent-1", "transport": httpx.MockTransport(gateway), "timeout": 1.0, **options}
        made.append(Guard("http://127.0.0.1:9", KEY, **given))
        gateway.guards.append(made[-1])
        return made[-1]

    yield make
    gateway.log.clear()
    for guard in made:
        guard.close()


@pytest.fixture
def guard(make_guard: Callable[..., Guard]) -> Guard:
    return make_guard()
