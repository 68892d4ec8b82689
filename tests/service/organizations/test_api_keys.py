"""The API key: regenerated, missing, invalid, of an inactive organization (spec §5)."""

from collections.abc import Callable
from functools import partial

import httpx
import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test, rows, set_active
from support.shapes import refused

SDK = [("POST", "/sdk/check"), ("POST", "/sdk/log"), ("GET", "/sdk/approvals/x")]


def test_the_answer_of_a_regeneration_has_four_fields(newcomer: Owner) -> None:
    """Regeneration answers id, name, the new key and the organization's own moment (spec §4, decisions §9)."""
    before = newcomer.http.get("/api/organization").json()
    answer = newcomer.http.post("/api/organization/regenerate-key")
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    new = answer.json()
    assert set(new) == {"id", "name", "api_key", "created_at"}
    assert new == {name: before[name] for name in ("id", "name", "created_at")} | {"api_key": new["api_key"]}
    assert new["api_key"] != newcomer.key
    assert newcomer.http.get("/api/organization").json()["api_key"] == new["api_key"]


def test_the_old_key_is_dead_at_once(newcomer: Owner) -> None:
    """The very next call with the old key is 401, on every SDK path; the new key works (spec §5)."""
    bot = newcomer.agent()
    assert newcomer.check(bot, "x").status_code == 200
    old, new = newcomer.key, newcomer.http.post("/api/organization/regenerate-key").json()["api_key"]
    for method, path in SDK:
        refused(newcomer.http.request(method, path, headers={"X-API-Key": old}), 401, "Invalid API key")
    newcomer.key = new
    assert newcomer.check(bot, "x").status_code == 200


def test_the_key_acts_for_every_agent_of_its_organization_and_no_other(acme: Owner, rival: Owner) -> None:
    """One key checks, logs and reads for all of an organization's agents, whoever they are (spec §5)."""
    agents, foreign = [acme.agent() for _ in range(3)], rival.agent()
    for agent in agents:
        acme.permit(agent, "a")
        assert acme.check(agent, "a").json()["allowed"] is True
        assert acme.log(agent, "a").status_code == 200
        read = acme.http.get("/sdk/permissions", params={"agent_id": agent}, headers={"X-API-Key": acme.key})
        assert len(read.json()) == 1
    rival.permit(foreign, "a")
    assert acme.check(foreign, "a").json()["allowed"] is False
    refused(acme.log(foreign, "a"), 404, "Agent not found")


def test_parallel_regenerations_leave_one_key(gateway: LiveGateway, newcomer: Owner) -> None:
    """Of five simultaneous regenerations exactly one key survives, and it is the one that is shown."""
    regenerate = partial(newcomer.http.post, "/api/organization/regenerate-key")
    answers = together(*[regenerate] * 5)
    assert [answer.status_code for answer in answers] == [200] * 5
    alive = (
        "SELECT count(*) FROM api_keys WHERE organization_id = ? AND environment = ? AND revoked_at IS NULL"
    )
    assert rows(gateway, alive, newcomer.user["organization_id"], "production") == [(1,)]
    shown = newcomer.http.get("/api/organization").json()["api_key"]
    works = [
        newcomer.http.post("/sdk/check", json={}, headers={"X-API-Key": answer.json()["api_key"]})
        for answer in answers
    ]
    assert sorted(answer.status_code for answer in works) == [400, 401, 401, 401, 401]
    assert newcomer.http.post("/sdk/check", json={}, headers={"X-API-Key": shown}).status_code == 400


def test_regeneration_leaves_the_test_key_alone(gateway: LiveGateway, newcomer: Owner) -> None:
    """Each environment has its own key (decisions §8)."""
    before = key_to_test(gateway, newcomer)
    newcomer.http.post("/api/organization/regenerate-key")
    assert key_to_test(gateway, newcomer) == before


@pytest.mark.parametrize(("method", "path"), SDK)
@pytest.mark.parametrize("body", [None, b"{", b'{"agent_id": 1}'])
def test_a_missing_key_is_told_before_the_body_is_judged(
    anyone: httpx.Client, method: str, path: str, body: bytes | None
) -> None:
    """Without a key every SDK path is 401 `Missing API key`, with no rate headers (spec §5, decisions §4)."""
    answer = anyone.request(method, path, content=body)
    refused(answer, 401, "Missing API key")
    assert "X-RateLimit-Limit" not in answer.headers


def cut(key: str) -> str:
    return key[:-1]


def longer(key: str) -> str:
    return key + "a"


def upper(key: str) -> str:
    return key.upper()


def swapped(key: str) -> str:
    return key.replace("ak_", "test_")


@pytest.mark.parametrize("change", [cut, longer, upper, swapped])
@pytest.mark.parametrize(("method", "path"), SDK)
def test_an_invalid_key_is_told(acme: Owner, change: Callable[[str], str], method: str, path: str) -> None:
    """A key that is nobody's is 401 `Invalid API key` (spec §5)."""
    answer = acme.http.request(method, path, headers={"X-API-Key": change(acme.key)})
    refused(answer, 401, "Invalid API key")
    assert "X-RateLimit-Limit" not in answer.headers


@pytest.mark.parametrize("key", [b"\xff\xfe", b"ak_'; DROP TABLE api_keys; --", b"x" * 5000])
def test_a_strange_key_is_invalid_like_any_other(acme: Owner, key: bytes) -> None:
    """No byte in the header is anything but a wrong key."""
    answer = acme.http.post("/sdk/check", json={}, headers=[(b"X-API-Key", key)])
    refused(answer, 401, "Invalid API key")


@pytest.mark.parametrize(("method", "path"), SDK)
def test_an_inactive_organization_is_told(
    gateway: LiveGateway, newcomer: Owner, method: str, path: str
) -> None:
    """An inactive organization's key is 401 with its own message, at once, and works again afterwards (spec §5)."""
    call = partial(newcomer.http.request, method, path, headers={"X-API-Key": newcomer.key})
    before = call().status_code
    set_active(gateway, newcomer, active=False)
    refused(call(), 401, "Organization is not active")
    set_active(gateway, newcomer, active=True)
    assert call().status_code == before != 401


@pytest.mark.parametrize(
    "name", ["api_key", "X-API-Key", "x-api-key", "key", "apikey", "access_token", "token"]
)
def test_a_key_in_an_address_or_a_cookie_opens_nothing(acme: Owner, bot: str, name: str) -> None:
    """Addresses are written down on the way, and browsers send cookies unasked: only the header counts."""
    body = {"agent_id": bot, "action": "pay"}
    for given in ({"params": {name: acme.key}}, {"headers": {"Cookie": f"{name}={acme.key}"}}):
        answer = httpx.post(f"{acme.url}/sdk/check", json=body, timeout=30, **given)  # type: ignore[arg-type]  # of either
        refused(answer, 401, "Missing API key")
    answer = httpx.post(f"{acme.url}/sdk/check", json=body, auth=(acme.key, acme.key), timeout=30)
    refused(answer, 401, "Missing API key")
    answer = httpx.get(f"{acme.url}/api/agents", params={name: acme.token}, timeout=30)
    refused(answer, 401, "Not authenticated")
