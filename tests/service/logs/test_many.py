"""POST /sdk/logs: many entries at once (decisions §3)."""

from collections import Counter
from functools import partial
from typing import Any

import httpx
import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test
from support.shapes import REQUIRED, complaints, refused
from support.tables import execute, rows

UNKNOWN = "01890000-0000-7000-8000-000000000000"


def send(owner: Owner, entries: object, key: str | None = None) -> httpx.Response:
    headers = {"X-API-Key": key or owner.key}
    return owner.http.post("/sdk/logs", json={"entries": entries}, headers=headers)


def results(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == ["results"]
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def entry(agent: str, **fields: object) -> dict[str, object]:
    return {"agent_id": agent, "action": "a", "status": "success", **fields}


def use(gateway: LiveGateway, owner: Owner, entries: int) -> None:
    """Leave the month with so many entries written."""
    owner.log(owner.agent(), "first")
    organization = owner.user["organization_id"]
    execute(
        gateway, "UPDATE monthly_usage SET log_entries = ? WHERE organization_id = ?", entries, organization
    )


def used(gateway: LiveGateway, owner: Owner) -> int:
    query = "SELECT log_entries FROM monthly_usage WHERE organization_id = ? AND environment = 'production'"
    [(count,)] = rows(gateway, query, owner.user["organization_id"])
    return int(count)


def test_a_hundred_entries_are_answered_in_order(acme: Owner, bot: str) -> None:
    """Each result is 200 with the entry as /sdk/log answers it, and the log lists them as they were sent."""
    found = results(send(acme, [entry(bot, context={"n": number}) for number in range(100)]))
    assert [one["status"] for one in found] == [200] * 100
    assert [one["entry"]["context"] for one in found] == [{"n": number} for number in range(100)]
    assert {tuple(one) for one in found} == {("status", "entry")}
    alone = acme.log(bot, "a").json()
    assert set(found[0]["entry"]) == set(alone)
    listed = acme.entries(agent_id=bot, limit=100)[1:]
    assert [one["id"] for one in listed] == [one["entry"]["id"] for one in found[:0:-1]]


def test_every_field_of_an_entry_is_kept(acme: Owner, bot: str) -> None:
    """An entry among others has the fields of one alone (decisions §6), its numbers exact."""
    fields: dict[str, Any] = {
        "status": "failed",
        "ip_address": "2001:db8::1",
        "occurred_at": "2026-01-31T12:00:00.000001Z",
        "decision_id": "d",
        "approval_id": "p",
        "call_id": "c",
        "run_id": "r",
    }
    body = b'{"entries":[{"agent_id":"%s","action":"a","context":{"amount":9007199254740993.10},"status":"failed"}]}'
    answer = acme.http.post("/sdk/logs", content=body % bot.encode(), headers={"X-API-Key": acme.key})
    assert b'"context":{"amount":9007199254740993.1}' in answer.content
    [result] = results(send(acme, [entry(bot, **fields)]))
    listed = acme.entries(agent_id=bot, limit=1)[0]
    assert listed["id"] == result["entry"]["id"]
    assert {name: listed[name] for name in fields} == fields


def test_one_bad_entry_fails_alone(acme: Owner, bot: str) -> None:
    """Whatever is wrong with an entry stands in its place with /sdk/log's status and detail; the others are stored."""
    big = {"text": "x" * 65_536}
    sent = [
        entry(bot),
        {"agent_id": bot},
        entry(bot, status="done"),
        entry(UNKNOWN),
        entry("no id"),
        entry(bot, context=big),
        "text",
        None,
        entry(bot, idempotency_key=""),
        entry(bot, idempotency_key=5, action="two words"),
        entry(bot),
    ]
    found = results(send(acme, sent))
    assert [one["status"] for one in found] == [200, 400, 400, 404, 404, 400, 400, 400, 400, 400, 200]
    assert found[1]["detail"] == {"action": [REQUIRED], "status": [REQUIRED]}
    for position in (2, 3, 5):
        alone = acme.http.post("/sdk/log", json=sent[position], headers={"X-API-Key": acme.key})
        assert (found[position]["status"], found[position]["detail"]) == (
            alone.status_code,
            alone.json()["detail"],
        )
    assert list(found[6]["detail"]) == list(found[7]["detail"]) == ["entry"]
    assert list(found[8]["detail"]) == ["idempotency_key"]
    assert set(found[9]["detail"]) == {"idempotency_key", "action"}
    assert len(acme.entries(agent_id=bot)) == 2


@pytest.mark.parametrize("body", [{}, {"entries": None}], ids=["absent", "null"])
def test_a_body_without_entries_is_told_so(acme: Owner, body: dict[str, object]) -> None:
    """The list is required."""
    answer = acme.http.post("/sdk/logs", json=body, headers={"X-API-Key": acme.key})
    assert complaints(answer) == {"entries": [REQUIRED]}


@pytest.mark.parametrize("entries", ["text", {}, 5, True], ids=["text", "object", "number", "boolean"])
def test_entries_must_be_a_list(acme: Owner, entries: object) -> None:
    """Anything else is 400 under its name."""
    assert list(complaints(send(acme, entries))) == ["entries"]


def test_a_hundred_and_one_entries_are_refused_whole(acme: Owner, bot: str) -> None:
    """Beyond a hundred nothing is stored, and the message names the limit."""
    [message] = complaints(send(acme, [entry(bot)] * 101))["entries"]
    assert "100" in message
    assert acme.entries(agent_id=bot) == []


def test_no_entries_have_no_results(acme: Owner) -> None:
    """An empty list is no mistake."""
    assert results(send(acme, [])) == []


def test_a_request_over_256_kib_is_refused_whole(acme: Owner, bot: str) -> None:
    """Five entries of 60 KiB are 413 and stored nowhere; four are not too many (decisions §2)."""
    fat = entry(bot, context={"text": "x" * 60_000})
    assert send(acme, [fat] * 5).status_code == 413
    assert acme.entries(agent_id=bot) == []
    assert [one["status"] for one in results(send(acme, [fat] * 4))] == [200] * 4


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"entries":[],"entries":[]}', b'{"entries":[{"a":NaN}]}']
)
def test_what_is_no_json_object_is_refused(acme: Owner, raw: bytes) -> None:
    """JSON is read strictly here too (decisions §2)."""
    answer = acme.http.post("/sdk/logs", content=raw, headers={"X-API-Key": acme.key})
    assert list(complaints(answer)) == ["body"]


def test_the_key_is_judged_first(acme: Owner) -> None:
    """401 as on /sdk/log, whatever the body (spec §5)."""
    refused(acme.http.post("/sdk/logs", content=b"{"), 401, "Missing API key")
    refused(send(acme, "x", key="ak_" + "a" * 37), 401, "Invalid API key")


def test_other_methods_are_refused(acme: Owner) -> None:
    """The path takes POST alone."""
    answer = acme.http.get("/sdk/logs")
    refused(answer, 405, "Method Not Allowed")
    assert answer.headers["Allow"] == "POST"


def test_a_batch_is_one_request_against_the_rate(acme: Owner, bot: str) -> None:
    """A hundred entries cost one request of the window that check and log share (decisions §7)."""
    while True:
        before = acme.log(bot, "a").headers
        answer = send(acme, [entry(bot)] * 100)
        if before["X-RateLimit-Reset"] == answer.headers["X-RateLimit-Reset"]:
            break
    assert int(before["X-RateLimit-Remaining"]) - int(answer.headers["X-RateLimit-Remaining"]) == 1


def test_beyond_the_rate_nothing_is_stored(free_gateway: LiveGateway) -> None:
    """The hundred and first request of a minute is 429, a batch like any other."""
    with Owner(free_gateway.url) as owner:
        bot = owner.agent()
        answers = [send(owner, [entry(bot)]) for _ in range(201)]
        refusals = [answer for answer in answers if answer.status_code == 429]
        assert refusals
        assert all("Retry-After" in answer.headers for answer in refusals)
        stored = sum(answer.status_code == 200 for answer in answers)
        assert used(free_gateway, owner) == stored


def test_the_month_may_fill_in_the_middle(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Of ten entries with four left, the first four are stored and six get the limit object of spec §7."""
    bot = frugal.agent()
    use(free_gateway, frugal, 996)
    found = results(send(frugal, [entry(bot)] * 10))
    assert [one["status"] for one in found] == [200] * 4 + [403] * 6
    assert {one["detail"]["error"] for one in found[4:]} == {"plan_limit_exceeded"}
    assert {one["detail"]["limit_type"] for one in found[4:]} == {"logs"}
    assert len(frugal.entries(agent_id=bot)) == 4
    assert used(free_gateway, frugal) == 1000


def test_bad_entries_cost_nothing_of_the_month(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Only what is stored counts: two left are filled by the two good ones of seven."""
    bot = frugal.agent()
    use(free_gateway, frugal, 998)
    sent = [
        entry(UNKNOWN),
        entry(bot, status="x"),
        entry(bot),
        entry(UNKNOWN),
        entry(bot, idempotency_key="k"),
    ]
    found = results(send(frugal, [*sent, entry(bot, idempotency_key="k"), entry(bot)]))
    assert [one["status"] for one in found] == [404, 400, 200, 404, 200, 200, 403]
    assert used(free_gateway, frugal) == 1000


def test_parallel_batches_fill_the_month_exactly(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Of eight simultaneous batches of forty with a hundred left, exactly a hundred entries are stored."""
    bot = frugal.agent()
    use(free_gateway, frugal, 900)
    answers = together(*[partial(send, frugal, [entry(bot)] * 40)] * 8)
    statuses = Counter(one["status"] for answer in answers for one in results(answer))
    assert statuses == {200: 100, 403: 220}
    assert used(free_gateway, frugal) == 1000


def test_the_same_key_twice_in_one_batch_is_one_entry(acme: Owner, bot: str) -> None:
    """The second is a replay of the first, marked so; with another body also as a mismatch (decisions §6)."""
    sent = [entry(bot, idempotency_key="k"), entry(bot, idempotency_key="k"), entry(bot, idempotency_key="l")]
    sent.append(entry(bot, idempotency_key="k", action="b"))
    first, again, other, differs = results(send(acme, sent))
    assert again == {"status": 200, "entry": first["entry"], "replayed": True}
    assert differs == {"status": 200, "entry": first["entry"], "replayed": True, "mismatch": True}
    assert "replayed" not in first
    assert "replayed" not in other
    assert len(acme.entries(agent_id=bot)) == 2


def test_a_batch_sent_again_stores_nothing_more(acme: Owner, bot: str) -> None:
    """A retry of a whole batch repeats its entries, and adds those that failed before."""
    late = acme.agent("late")
    sent = [entry(bot, idempotency_key=f"{bot}-{number}") for number in range(20)]
    first = results(send(acme, [*sent, entry(UNKNOWN, idempotency_key=f"{bot}-late")]))
    again = results(send(acme, [*sent, entry(late, idempotency_key=f"{bot}-late")]))
    assert [one["entry"] for one in again[:20]] == [one["entry"] for one in first[:20]]
    assert all(one["replayed"] for one in again[:20])
    assert [first[20]["status"], again[20]["status"], "replayed" in again[20]] == [404, 200, False]
    assert len(acme.entries(agent_id=bot)) == 20


def test_an_entry_sent_alone_and_then_in_a_batch_is_the_same(acme: Owner, bot: str) -> None:
    """Both ways share their keys: a replay is no mismatch, in either direction (decisions §6)."""
    body = entry(bot, context={"n": 1.0})
    headers = {"X-API-Key": acme.key, "Idempotency-Key": f"{bot}-alone"}
    alone = acme.http.post("/sdk/log", json=body, headers=headers)
    [repeated] = results(send(acme, [body | {"idempotency_key": f"{bot}-alone"}]))
    assert repeated == {"status": 200, "entry": alone.json(), "replayed": True}
    [first] = results(send(acme, [body | {"idempotency_key": f"{bot}-many"}]))
    again = acme.http.post("/sdk/log", json=body, headers=headers | {"Idempotency-Key": f"{bot}-many"})
    assert again.json() == first["entry"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Mismatch" not in again.headers


def test_what_is_no_entry_under_a_used_key_is_answered_as_before(acme: Owner, bot: str) -> None:
    """As alone: a used key repeats its answer whatever else is sent with it, an unused one gets the complaint."""
    bad = {"agent_id": bot, "idempotency_key": f"{bot}-used"}
    [refusal] = results(send(acme, [bad]))
    assert (refusal["status"], set(refusal["detail"])) == (400, {"action", "status"})
    [first] = results(send(acme, [entry(bot, idempotency_key=f"{bot}-used")]))
    found = results(send(acme, [bad, entry(bot), {**bad, "idempotency_key": f"{bot}-unused"}]))
    assert found[0] == first | {"replayed": True, "mismatch": True}
    assert [one["status"] for one in found] == [200, 200, 400]
    assert len(acme.entries(agent_id=bot)) == 2


def test_parallel_equal_batches_store_once(acme: Owner, bot: str) -> None:
    """Of six simultaneous sendings of one batch, one stores each entry."""
    sent = [entry(bot, idempotency_key=f"{bot}-{number}") for number in range(30)]
    found = [results(answer) for answer in together(*[partial(send, acme, sent)] * 6)]
    fresh = Counter("replayed" not in one for batch in found for one in batch)
    assert fresh == {True: 30, False: 150}
    assert len({tuple(one["entry"]["id"] for one in batch) for batch in found}) == 1
    assert len(acme.entries(agent_id=bot, limit=100)) == 30


def test_an_agents_own_key_logs_for_that_agent_alone(acme: Owner, bot: str) -> None:
    """Entries of another agent are 404 in their places (decisions §3)."""
    made = acme.http.post(f"/api/agents/{bot}/keys")
    assert made.status_code in {200, 201}, made.text
    found = results(send(acme, [entry(bot), entry(acme.agent()), entry(bot)], key=made.json()["api_key"]))
    assert [one["status"] for one in found] == [200, 404, 200]
    assert found[1]["detail"] == "Agent not found"


def test_an_agents_own_key_learns_nothing_by_what_is_no_entry(acme: Owner, bot: str) -> None:
    """Through a key that acts as one agent, another agent's answer is not found by its idempotency key."""
    send(acme, [entry(bot, idempotency_key=f"{bot}-others")])
    other = acme.http.post(f"/api/agents/{acme.agent()}/keys").json()["api_key"]
    [found] = results(send(acme, [{"idempotency_key": f"{bot}-others"}], key=other))
    assert found["status"] == 400


def test_entries_belong_to_the_keys_environment(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    """A test key stores test entries, and knows no production agent (decisions §8)."""
    test = {"environment": "test"}
    rehearsal = acme.http.post("/api/agents", json={"name": "t"}, params=test).json()["id"]
    found = results(send(acme, [entry(rehearsal), entry(bot)], key=key_to_test(gateway, acme)))
    assert [one["status"] for one in found] == [200, 404]
    assert len(acme.entries(agent_id=rehearsal, environment="test")) == 1
    assert acme.entries(agent_id=rehearsal) == []
