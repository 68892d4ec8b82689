"""Checks and log entries that are taken at once are answered as on the road of all requests."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.gateway import LiveGateway, Owner
from support.raw import Raw, RawAnswer, whole
from support.waiting import until

#: differ from answer to answer
OWN = {"x-decision-id", "x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset", "date"}
EVERY = {"x-request-id", "date"}


@pytest.fixture(scope="module")
def shop(live_gateway: LiveGateway) -> Iterator[Owner]:
    """An organization."""
    with Owner(live_gateway.url) as owner:
        yield owner


@pytest.fixture(scope="module")
def agent(shop: Owner) -> str:
    """An agent that may pay up to 100, and drop what a person approves."""
    agent = shop.agent()
    shop.permit(agent, "pay", max_amount=100)
    shop.permit(agent, "drop", requires_approval=True)
    return agent


@pytest.fixture(scope="module")
def raw(shop: Owner) -> Iterator[Raw]:
    """A connection that stays."""
    with Raw(shop.url) as raw:
        yield raw


def request(key: str, body: bytes, *headers: bytes, version: bytes = b"1.1", path: bytes = b"check") -> bytes:
    """A whole request."""
    lines = [
        b"POST /sdk/" + path + b" HTTP/" + version,
        b"Host: gateway",
        b"Content-Length: %d" % len(body),
        *headers,
    ]
    if key:
        lines.append(b"X-API-Key: " + key.encode())
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def told(answer: RawAnswer) -> tuple[int, Any, dict[str, str]]:
    """What an answer says, but for what is its own."""
    kept = {name: value for name, value in whole(answer).headers.items() if name not in OWN}
    assert set(answer.headers) >= EVERY
    names = {"": ",".join(sorted(answer.headers))}
    said = answer.json()
    for own in ("id", "created_at"):
        said.pop(own, None)
    if "id" in answer.json():
        del kept["content-length"]
    return answer.status, said, kept | names


def both(
    raw: Raw, key: str, body: bytes, *headers: bytes, path: bytes = b"check"
) -> tuple[int, Any, dict[str, str]]:
    """Ask on either road; the coding that changes nothing is reason enough for the usual one."""
    quick = told(raw.send(request(key, body, *headers, path=path)).answer())
    usual = told(raw.send(request(key, body, *headers, b"Content-Encoding: identity", path=path)).answer())
    assert quick == usual
    return quick


def is_quick(answer: RawAnswer) -> bool:
    """Whether it was answered at once: the usual road begins with the type of what it says."""
    return list(answer.headers).index("x-decision-id") < list(answer.headers).index("content-type")


BODIES: dict[str, tuple[dict[str, Any], int]] = {
    "allowed": ({"action": "pay", "context": {"amount": 12.5, "note": "é\u2028"}}, 200),
    "no-context": ({"action": "pay"}, 200),
    "unknown-field": ({"action": "pay", "more": [1]}, 200),
    "too-much": ({"action": "pay", "context": {"amount": 100.01}}, 200),
    "odd-amount": ({"action": "pay", "context": {"amount": "12"}}, 200),
    "no-permission": ({"action": "sell"}, 200),
    "held": ({"action": "drop", "call_id": "one"}, 200),
    "dry": ({"action": "drop", "dry_run": True}, 200),
    "spent-approval": ({"action": "pay", "approval_id": "01a201d4-e52b-75f1-900f-8708a9b7e972"}, 200),
    "unknown-agent": ({"action": "pay", "agent_id": "nobody"}, 200),
    "no-action": ({}, 400),
    "bad-action": ({"action": "two words"}, 400),
    "bad-reference": ({"action": "pay", "run_id": ""}, 400),
    "bad-context": ({"action": "pay", "context": []}, 400),
    "bad-flag": ({"action": "pay", "dry_run": 1}, 400),
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_both_roads_say_the_same(
    raw: Raw, shop: Owner, agent: str, body: dict[str, Any], status: int
) -> None:
    """Status, body and headers are those of the usual road, whatever is asked."""
    assert both(raw, shop.key, json.dumps({"agent_id": agent, **body}).encode())[0] == status


ENTRIES: dict[str, tuple[dict[str, Any], int]] = {
    "success": ({"action": "pay", "status": "success", "context": {"amount": 1.5, "to": "é"}}, 200),
    "no-context": ({"action": "pay", "status": "failed"}, 200),
    "moment": ({"action": "pay", "status": "denied", "occurred_at": "2026-01-31T12:00:00Z"}, 200),
    "unknown-agent": ({"action": "pay", "status": "success", "agent_id": "nobody"}, 404),
    "no-action": ({"status": "success"}, 400),
    "bad-status": ({"action": "pay", "status": "done"}, 400),
    "bad-address": ({"action": "pay", "status": "success", "ip_address": "here"}, 400),
    "bad-context": ({"action": "pay", "status": "success", "context": 1}, 400),
}


@pytest.mark.parametrize(("body", "status"), ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize("headers", [(), (b"Idempotency-Key: bad\x00",), (b"X-Forwarded-For: 192.0.2.1",)])
def test_both_roads_take_entries_alike(
    raw: Raw, shop: Owner, agent: str, body: dict[str, Any], status: int, headers: tuple[bytes, ...]
) -> None:
    """What is stored, or why nothing is, is the same."""
    text = json.dumps({"agent_id": agent, **body}).encode()
    if b"\x00" in b"".join(headers):
        headers = (b"Idempotency-Key: " + b"k" * 300,)
        status = 400
    assert both(raw, shop.key, text, *headers, path=b"log")[0] == status


def test_both_roads_remember_a_key_alike(raw: Raw, shop: Owner, agent: str) -> None:
    """The entry is stored once; the second time it is the first answer, whichever road it takes."""
    for first, again in (((), USUAL), (USUAL, ()), ((), ()), (USUAL, USUAL)):
        action = f"once.{len(first)}.{len(again)}"
        body = json.dumps({"agent_id": agent, "action": action, "status": "success"}).encode()
        other = json.dumps({"agent_id": agent, "action": action, "status": "failed"}).encode()
        key = b"Idempotency-Key: " + action.encode()
        stored = raw.send(request(shop.key, body, key, *first, path=b"log")).answer()
        replayed = raw.send(request(shop.key, body, key, *again, path=b"log")).answer()
        mismatched = raw.send(request(shop.key, other, key, *again, path=b"log")).answer()
        assert stored.body == replayed.body == mismatched.body
        assert "idempotency-replayed" not in stored.headers
        assert replayed.headers["idempotency-replayed"] == "true"
        assert mismatched.headers["idempotency-mismatch"] == "true"
        assert len(shop.entries(action=action)) == 1


USUAL = (b"Content-Encoding: identity",)


@pytest.mark.parametrize(
    "headers",
    [
        (b"X-Request-ID: mine-1",),
        (b"X-Request-ID: not mine",),
        (b"X-Request-ID: one", b"X-Request-ID: two"),
        (b"Idempotency-Key: once",),
        (b"Idempotency-Key: ",),
        (b"Origin: https://elsewhere.test",),
        (b"X-Forwarded-For: 192.0.2.1",),
        (b"X-API-Key: wrong",),
        (b"Content-Type: text/plain",),
    ],
    ids=["id", "bad-id", "two-ids", "key", "empty-key", "origin", "forwarded", "two-api-keys", "type"],
)
def test_both_roads_read_headers_alike(raw: Raw, shop: Owner, agent: str, headers: tuple[bytes, ...]) -> None:
    """A header has the same effect on both."""
    both(raw, shop.key, json.dumps({"agent_id": agent, "action": "pay"}).encode(), *headers)
    entry = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
    if b"once" not in headers[0]:
        both(raw, shop.key, entry, *headers, path=b"log")


@pytest.mark.parametrize("key", ["", "ak_wrong", "é"])
def test_both_roads_refuse_a_wrong_key(raw: Raw, agent: str, key: str) -> None:
    """Without a key that counts it is 401."""
    body = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
    assert both(raw, key, body)[0] == both(raw, key, body, path=b"log")[0] == 401


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = st.dictionaries(
    st.sampled_from(["action", "context", "call_id", "dry_run", "agent_id"]), VALUES, max_size=4
)


@given(members=MEMBERS, amount=VALUES, cut=st.integers(0, 3))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_both_roads_read_bodies_alike(
    raw: Raw, shop: Owner, agent: str, members: dict[str, Any], amount: object, cut: int
) -> None:
    """Whatever the body is, and wherever it ends."""
    body = {"agent_id": agent, "action": "pay", "context": {"amount": amount}, **members}
    text = json.dumps(body).encode()
    both(raw, shop.key, text[: len(text) - cut])
    text = json.dumps({"status": "success", **body}).encode()
    both(raw, shop.key, text[: len(text) - cut], path=b"log")


def test_a_plain_check_is_answered_at_once(raw: Raw, shop: Owner, agent: str) -> None:
    """A check with a coding, and one that a person must approve, go the usual way."""
    body = json.dumps({"agent_id": agent, "action": "pay"}).encode()
    assert is_quick(raw.send(request(shop.key, body)).answer())
    assert not is_quick(raw.send(request(shop.key, body, b"Content-Encoding: identity")).answer())
    held = json.dumps({"agent_id": agent, "action": "drop"}).encode()
    assert not is_quick(raw.send(request(shop.key, held)).answer())


def test_a_check_in_pieces_is_answered(raw: Raw, shop: Owner, agent: str) -> None:
    """Wherever it is cut."""
    for path, said in ((b"check", "allowed"), (b"log", "action")):
        body = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
        whole_request = request(shop.key, body, path=path)
        for at in range(1, len(whole_request), 23):
            assert said in raw.send(whole_request[:at], whole_request[at:]).answer().json()


def test_answers_come_in_order(raw: Raw, shop: Owner, agent: str) -> None:
    """Requests sent without waiting are answered as they came, quick ones and those that a person must approve."""
    pay, drop = (json.dumps({"agent_id": agent, "action": action}).encode() for action in ("pay", "drop"))
    entry = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
    log = request(shop.key, entry, path=b"log")
    sent = b"".join(
        one.replace(b"\r\n\r\n", b"\r\nX-Request-ID: number-%d\r\n\r\n" % number, 1)
        for number, one in enumerate(
            [request(shop.key, pay), log, request(shop.key, drop), log, request(shop.key, pay)] * 3
        )
    )
    raw.send(sent)
    assert [raw.answer().headers["x-request-id"] for _ in range(15)] == [f"number-{n}" for n in range(15)]


def test_a_check_is_counted_once(raw: Raw, shop: Owner, agent: str) -> None:
    """Also one that began at once and went on the usual way, as a person must approve it."""
    bodies = [
        json.dumps({"agent_id": agent, "action": action}).encode()
        for action in ("pay", "drop", "drop", "pay")
    ]

    def asked() -> list[dict[str, str]]:
        return [raw.send(request(shop.key, body)).answer().headers for body in bodies]

    # A minute may turn meanwhile, and another one cannot turn so soon.
    told = next(told for told in (asked(), asked()) if len({one["x-ratelimit-reset"] for one in told}) == 1)
    left = [int(one["x-ratelimit-remaining"]) for one in told]
    assert left == list(range(left[0], left[0] - 4, -1))


@pytest.mark.parametrize(
    ("headers", "version"), [((b"Connection: close",), b"1.1"), ((), b"1.0")], ids=["close", "http-1.0"]
)
def test_a_last_check_ends_the_connection(
    shop: Owner, agent: str, headers: tuple[bytes, ...], version: bytes
) -> None:
    """Who wants no further answer is told so, and gets none."""
    body = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
    for path in (b"check", b"log"):
        with Raw(shop.url) as raw:
            answer = raw.send(request(shop.key, body, *headers, version=version, path=path)).answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert raw.ended()


def test_what_is_no_request_behind_an_entry_ends_the_connection_after_it(shop: Owner, agent: str) -> None:
    """The entry is answered, as the last one, and nothing more is taken."""
    body = json.dumps({"agent_id": agent, "action": "last", "status": "success"}).encode()
    with Raw(shop.url) as raw:
        answer = raw.send(request(shop.key, body, path=b"log") + b"no request\r\n\r\n").answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert raw.ended()
    assert len(shop.entries(action="last")) == 1


def test_an_entry_is_stored_though_its_sender_hangs_up(shop: Owner, agent: str) -> None:
    """What came whole is written, whoever waits for the answer."""
    body = json.dumps({"agent_id": agent, "action": "gone", "status": "success"}).encode()
    with Raw(shop.url) as raw:
        raw.send(request(shop.key, body, path=b"log"))
    until(lambda: len(shop.entries(action="gone")) == 1)
