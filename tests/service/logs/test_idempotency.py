"""`Idempotency-Key` on POST /sdk/log (spec §4, decisions §6)."""

from datetime import datetime, timedelta
from functools import partial

import httpx
import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import execute, rows


def send(owner: Owner, agent: str, key: str, **changes: object) -> httpx.Response:
    body = {"agent_id": agent, "action": "a", "status": "success"} | changes
    headers = {"X-API-Key": owner.key, "Idempotency-Key": key}
    return owner.http.post("/sdk/log", json=body, headers=headers)


def repeats(first: httpx.Response, again: httpx.Response, *, mismatch: bool = False) -> bool:
    """Say whether an answer is the first one's, byte for byte, and says so in its headers."""
    return (
        again.status_code == first.status_code == 200
        and again.content == first.content
        and again.headers.get("Idempotency-Replayed") == "true"
        and again.headers.get("Idempotency-Mismatch") == ("true" if mismatch else None)
    )


def test_the_same_key_repeats_the_answer(acme: Owner, bot: str) -> None:
    """The original answer byte for byte, marked as replayed; one entry (spec §4)."""
    first = send(acme, bot, f"{bot}-1", context={"n": 1.10})
    assert "Idempotency-Replayed" not in first.headers
    assert repeats(first, send(acme, bot, f"{bot}-1", context={"n": 1.10}))
    assert repeats(first, send(acme, bot, f"{bot}-1", context={"n": 1.10}))
    assert [entry["id"] for entry in acme.entries(agent_id=bot)] == [first.json()["id"]]


def test_another_body_gets_the_original_answer_and_is_told(acme: Owner, bot: str) -> None:
    """A differing body repeats the original as well, with a header that says so (decisions §6)."""
    first = send(acme, bot, f"{bot}-1")
    assert repeats(first, send(acme, bot, f"{bot}-1", status="failed"), mismatch=True)
    assert repeats(first, send(acme, acme.agent(), f"{bot}-1"), mismatch=True)
    assert repeats(first, send(acme, bot, f"{bot}-1"))
    assert [entry["status"] for entry in acme.entries(agent_id=bot)] == ["success"]


def test_another_key_is_another_entry(acme: Owner, bot: str) -> None:
    """Keys are compared letter by letter."""
    ids = {send(acme, bot, f"{bot}{suffix}").json()["id"] for suffix in ("-a", "-A", "-a-", "-b")}
    assert len(ids) == 4


def test_without_a_key_equal_entries_are_two(acme: Owner, bot: str) -> None:
    """Only a key makes two requests one."""
    assert acme.log(bot, "a").json()["id"] != acme.log(bot, "a").json()["id"]
    assert len(acme.entries(agent_id=bot)) == 2


@pytest.mark.parametrize("key", ["k", "k" * 255, "a b", "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~"])
def test_any_printable_key_works(acme: Owner, key: str) -> None:
    """A key is 1-255 printable characters."""
    agent = acme.agent()
    assert repeats(send(acme, agent, key), send(acme, agent, key))


def test_of_parallel_requests_with_one_key_one_stores(acme: Owner, bot: str) -> None:
    """Ten at once: one entry, ten equal bodies, nine marked as replayed (decisions §6)."""
    answers = together(*[partial(send, acme, bot, f"{bot}-race")] * 10)
    assert [answer.status_code for answer in answers] == [200] * 10
    assert len({answer.content for answer in answers}) == 1
    assert sum("Idempotency-Replayed" in answer.headers for answer in answers) == 9
    assert len(acme.entries(agent_id=bot)) == 1


def test_organizations_share_no_keys(acme: Owner, rival: Owner, bot: str) -> None:
    """Another organization's key of the same name is another key (decisions §6)."""
    first, second = send(acme, bot, f"{bot}-shared"), send(rival, rival.agent(), f"{bot}-shared")
    assert first.json()["id"] != second.json()["id"]
    assert "Idempotency-Replayed" not in second.headers


def test_only_successes_are_remembered(acme: Owner, bot: str) -> None:
    """After a refusal the same key works (decisions §6)."""
    key = f"{bot}-retry"
    assert send(acme, bot, key, status="nonsense").status_code == 400
    assert send(acme, "unknown", key).status_code == 404
    first = send(acme, bot, key)
    assert (first.status_code, "Idempotency-Replayed" in first.headers) == (200, False)


def test_a_key_is_remembered_for_a_day(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    """24 hours after the first answer the key is forgotten, and may be used again (spec §4)."""
    first = send(acme, bot, f"{bot}-day")
    where = "WHERE organization_id = ? AND key = ?"
    of = (acme.user["organization_id"], f"{bot}-day")
    [(created, expires)] = rows(gateway, f"SELECT created_at, expires_at FROM idempotency_keys {where}", *of)
    assert datetime.fromisoformat(expires) - datetime.fromisoformat(created) == timedelta(hours=24)
    assert created == first.json()["created_at"]
    execute(gateway, f"UPDATE idempotency_keys SET expires_at = created_at {where}", *of)
    second = send(acme, bot, f"{bot}-day")
    assert second.json()["id"] != first.json()["id"]
    assert repeats(second, send(acme, bot, f"{bot}-day"))


def test_a_deleted_agents_answer_is_repeated(acme: Owner, bot: str) -> None:
    """The original answer is returned within the day, whatever became of the agent (spec §4)."""
    first = send(acme, bot, f"{bot}-deleted")
    acme.http.delete(f"/api/agents/{bot}")
    assert repeats(first, send(acme, bot, f"{bot}-deleted"))
    assert send(acme, bot, f"{bot}-other").status_code == 404


def test_a_mismatch_is_audited(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    """A key sent again with another body leaves a trace in the management audit (decisions §6)."""
    query = (
        "SELECT count(*) FROM audit_entries WHERE kind = 'log.idempotency_mismatch' AND organization_id = ?"
    )
    before = rows(gateway, query, acme.user["organization_id"])[0][0]
    for action in ("one", "one", "other"):
        body = {"agent_id": bot, "action": action, "status": "success"}
        headers = {"X-API-Key": acme.key, "Idempotency-Key": "audited"}
        assert acme.http.post("/sdk/log", json=body, headers=headers).status_code == 200
    assert rows(gateway, query, acme.user["organization_id"])[0][0] == before + 1


@pytest.mark.parametrize(
    "body", [b"{}", b'{"status": 1}', b"no JSON", b""], ids=["empty", "wrong", "text", "nothing"]
)
def test_a_body_that_is_no_entry_is_another_body(acme: Owner, bot: str, body: bytes) -> None:
    """A key that was used before is answered as before, also when the body is none; an unused one is not (decisions §6)."""
    headers = {"X-API-Key": acme.key, "Idempotency-Key": f"{bot}-no-entry-{len(body)}"}
    assert acme.http.post("/sdk/log", content=body, headers=headers).status_code == 400
    first = send(acme, bot, headers["Idempotency-Key"])
    again = acme.http.post("/sdk/log", content=body, headers=headers)
    assert (again.status_code, again.content) == (200, first.content)
    assert (again.headers["Idempotency-Replayed"], again.headers["Idempotency-Mismatch"]) == ("true", "true")
    assert len(acme.entries(agent_id=bot)) == 1


def test_an_agents_own_key_learns_nothing_by_a_body_that_is_no_entry(acme: Owner, bot: str) -> None:
    """Through a key that acts as one agent, another agent's answer is not found by its idempotency key."""
    send(acme, bot, f"{bot}-others")
    other = acme.http.post(f"/api/agents/{acme.agent()}/keys").json()["api_key"]
    headers = {"X-API-Key": other, "Idempotency-Key": f"{bot}-others"}
    assert acme.http.post("/sdk/log", content=b"{}", headers=headers).status_code == 400


def test_a_replay_counts_against_the_rate(acme: Owner, bot: str) -> None:
    """Sent again, an entry costs one more request of the minute (decisions §6)."""
    while True:
        first, again = (send(acme, bot, f"{bot}-counted") for _ in range(2))
        if first.headers["X-RateLimit-Reset"] == again.headers["X-RateLimit-Reset"]:
            break
    assert again.headers["Idempotency-Replayed"] == "true"
    left = [int(answer.headers["X-RateLimit-Remaining"]) for answer in (first, again)]
    assert left[0] - left[1] == 1


def test_an_agents_own_key_sees_no_other_agents_answer(acme: Owner, bot: str) -> None:
    """Through a key that acts as one agent, an idempotency key that another agent used is refused, its own repeated."""
    other = acme.agent()
    own = acme.http.post(f"/api/agents/{other}/keys").json()["api_key"]
    send(acme, bot, f"{bot}-first")

    def log(key: str) -> httpx.Response:
        body = {"agent_id": other, "action": "x.y", "status": "success"}
        return acme.http.post("/sdk/log", json=body, headers={"X-API-Key": own, "Idempotency-Key": key})

    refused = log(f"{bot}-first")
    assert refused.status_code == 400
    assert list(refused.json()["detail"]) == ["Idempotency-Key"]
    assert bot not in refused.text
    assert repeats(log(f"{bot}-own"), log(f"{bot}-own"))
