"""A gateway of the version before and one of this version serve one database: whatever one does, the other sees."""

from functools import partial
from typing import Any

import httpx
import pytest
from support.before import Versions
from support.console import Reader
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.wire import Heard, Wire

pytestmark = pytest.mark.postgresql_only(
    "gateways share a server; of two on one file tells the rolling update"
)

#: members of responses that the version before does not have
ADDED = {"type"}
PAGES = [
    "start",
    "overview",
    "approvals",
    "agents",
    "logs",
    "grants",
    "settings",
    "settings/team",
    "settings/webhooks",
]


@pytest.fixture(params=["from before to now", "from now to before"])
def ways(request: pytest.FixtureRequest, versions: Versions) -> tuple[LiveGateway, LiveGateway]:
    """The gateway where a thing is done, and the one that must see it."""
    pair = (versions.before, versions.now)
    return pair if request.param == "from before to now" else pair[::-1]


def ok(answer: Heard, status: int = 200) -> Heard:
    """Return an answer that is as it should be."""
    assert answer.status == status, answer.raw
    return answer


def without_added(shown: Any) -> Any:
    """Return a response body without the members that the version before does not have."""
    if not isinstance(shown, list):
        return shown
    return [{name: value for name, value in one.items() if name not in ADDED} for one in shown]


def test_people_agents_and_pages(ways: tuple[LiveGateway, LiveGateway]) -> None:
    """Somebody who registers with one logs in at the other; agents, permissions, entries and pages are the same."""
    here, there = ways
    with Owner(here.url) as owner, Wire.of(owner, there.url) as other:
        login = {"email": owner.email, "password": PASSWORD}
        ok(other.send("POST", "/auth/login", login))
        agent = owner.agent()
        ok(
            other.send("POST", f"/api/agents/{agent}/permissions", {"action": "mail.send", "max_amount": 5}),
            201,
        )
        ok(other.log(agent, "mail.send"))
        for gateway in ways:
            with Wire.of(owner, gateway.url) as wire:
                assert [wire.allowed(agent, "mail.send", amount=amount) for amount in (5, 6)] == [True, False]
        paths = ("/api/agents", f"/api/agents/{agent}/permissions", "/api/logs", "/api/audit", "/api/team")
        for path in (*paths, "/api/billing/usage", "/api/organization"):
            shown = [ok(other.send("GET", path)).json(), owner.http.get(path).json()]
            assert without_added(shown[0]) == without_added(shown[1]), path
        with Reader.of(here.url, owner.email) as reader, Reader(there.url) as second:
            second.http.cookies = reader.http.cookies
            for page in PAGES:
                reader.page(f"/console/{page}")
                second.page(f"/console/{page}")


def test_approvals(ways: tuple[LiveGateway, LiveGateway]) -> None:
    """What is held at one is decided at the other, who waits at the first hears it, and it passes once, at either."""
    here, there = ways
    with Owner(here.url) as owner, Wire.of(owner, there.url) as other, Wire.of(owner) as wire:
        agent = owner.agent()
        owner.permit(agent, "db.drop", requires_approval=True)
        held = owner.check(agent, "db.drop", {"t": 1}).json()["approval_id"]
        assert other.check(agent, "db.drop", t=1).json()["approval_id"] == held
        waited, decided = together(
            partial(wire.send, "GET", f"/sdk/approvals/{held}?wait=30"),
            partial(other.send, "POST", f"/api/approvals/{held}/approve", {"note": "yes"}),
        )
        ok(decided)
        assert ok(waited).json()["status"] in {"approved", "consumed"}
        passed = together(
            *[partial(_passes, owner, gateway, agent) for gateway in ways for _ in range(4)],
        )
        assert sorted(passed) == [False] * 7 + [True]
        shown = [
            owner.http.get(f"/api/approvals/{held}").json(),
            other.send("GET", f"/api/approvals/{held}").json(),
        ]
        assert [one["status"] for one in shown] == ["consumed"] * 2
        granting = ok(other.send("GET", "/api/approvals?status=pending")).json()[0]["id"]
        ok(other.send("POST", f"/api/approvals/{granting}/approve", {"grant": {"uses": 3, "seconds": 60}}))
        assert [_passes(owner, gateway, agent) for gateway in (*ways, *ways)] == [True, True, True, True]


def _passes(owner: Owner, gateway: LiveGateway, agent: str) -> bool:
    with Wire.of(owner, gateway.url) as wire:
        return wire.allowed(agent, "db.drop", t=1)


def test_one_key_one_entry(ways: tuple[LiveGateway, LiveGateway]) -> None:
    """Entries sent under one idempotency key through both, at once and again, are one entry with one answer."""
    here, there = ways
    with Owner(here.url) as owner:
        agent = owner.agent()

        def send(gateway: LiveGateway, key: str) -> bytes:
            with Wire.of(owner, gateway.url) as wire:
                return ok(wire.log(agent, "mail.send", key=key, n=key)).raw

        for number in range(10):
            key = str(number)
            raced = together(partial(send, here, key), partial(send, there, key))
            assert len({*raced, send(here, key), send(there, key)}) == 1
        with Wire.of(owner, there.url) as wire:
            assert len(wire.entries("mail.send")) == 10
            assert ok(wire.send("GET", "/api/billing/usage")).json()["logs"]["current"] == 10
            many = {
                "entries": [{"agent_id": agent, "action": "x", "status": "failed", "idempotency_key": "m"}]
            }
            first, second = (
                ok(wire.send("POST", "/sdk/logs", many)),
                owner.http.post("/sdk/logs", json=many, headers={"X-API-Key": owner.key}),
            )
            assert first.json()["results"][0]["entry"] == second.json()["results"][0]["entry"]


def test_what_is_taken_away_is_gone_at_once(ways: tuple[LiveGateway, LiveGateway]) -> None:
    """A permission, an agent, a key and a login that end at one are refused by the very next request to the other."""
    here, there = ways
    with Owner(here.url) as owner, Wire.of(owner, there.url) as other:
        agent = owner.agent()
        for _ in range(10):
            permission = owner.permit(agent, "mail.send")
            assert other.allowed(agent, "mail.send") is True
            assert owner.http.delete(f"/api/permissions/{permission}").status_code == 204
            assert other.allowed(agent, "mail.send") is False
        owner.permit(agent, "mail.send")
        for status, allowed in (("inactive", False), ("active", True)):
            assert owner.http.put(f"/api/agents/{agent}", json={"status": status}).status_code == 200
            assert other.allowed(agent, "mail.send") is allowed
        assert owner.http.post("/api/organization/regenerate-key").status_code == 200
        assert other.check(agent, "mail.send").status == 401
        assert owner.http.post("/auth/logout").status_code == 204
        assert other.send("GET", "/api/agents").status == 401
        with httpx.Client(base_url=there.url, headers=owner.http.headers) as client:
            assert client.get("/auth/me").status_code == 401
