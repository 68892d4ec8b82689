"""Requests to /sdk/check and /sdk/log as a client sends them: whole, in pieces, several at once, the last of a connection."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.raw import Raw, RawAnswer, whole
from support.waiting import until

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


def ask(raw: Raw, key: str, body: bytes, *headers: bytes, path: bytes = b"check") -> RawAnswer:
    """Send a request, and return its complete answer."""
    answer = whole(raw.send(request(key, body, *headers, path=path)).answer())
    assert set(answer.headers) >= EVERY
    return answer


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
@pytest.mark.parametrize("headers", [(), (b"Content-Encoding: identity",)], ids=["plain", "coded"])
def test_a_check_is_answered(
    raw: Raw, shop: Owner, agent: str, body: dict[str, Any], status: int, headers: tuple[bytes, ...]
) -> None:
    text = json.dumps({"agent_id": agent, **body}).encode()
    answer = ask(raw, shop.key, text, *headers)
    assert answer.status == status
    assert answer.headers["x-decision-id"]
    assert answer.headers["x-toolgate-environment"] == "production"


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
@pytest.mark.parametrize(
    "headers",
    [
        (),
        (b"Idempotency-Key: " + b"k" * 300,),
        (b"X-Forwarded-For: 192.0.2.1",),
        (b"Content-Encoding: identity",),
    ],
    ids=["plain", "bad-key", "forwarded", "coded"],
)
def test_an_entry_is_answered(
    raw: Raw, shop: Owner, agent: str, body: dict[str, Any], status: int, headers: tuple[bytes, ...]
) -> None:
    text = json.dumps({"agent_id": agent, **body}).encode()
    expected = 400 if b"Idempotency-Key" in b"".join(headers) else status
    assert ask(raw, shop.key, text, *headers, path=b"log").status == expected


def test_a_repeated_key_stores_one_entry(raw: Raw, shop: Owner, agent: str) -> None:
    """The second request is answered as the first one, and told so, also when its body differs."""
    body = json.dumps({"agent_id": agent, "action": "once", "status": "success"}).encode()
    other = json.dumps({"agent_id": agent, "action": "once", "status": "failed"}).encode()
    key = b"Idempotency-Key: once"
    stored, replayed, mismatched = (
        ask(raw, shop.key, text, key, path=b"log") for text in (body, body, other)
    )
    assert stored.body == replayed.body == mismatched.body
    assert "idempotency-replayed" not in stored.headers
    assert replayed.headers["idempotency-replayed"] == "true"
    assert mismatched.headers["idempotency-mismatch"] == "true"
    assert len(shop.entries(action="once")) == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((b"X-Request-ID: not mine",), 200),
        ((b"X-Request-ID: one", b"X-Request-ID: two"), 400),
        ((b"Idempotency-Key: ",), 400),
        ((b"Origin: https://elsewhere.test",), 200),
        ((b"X-Forwarded-For: 192.0.2.1",), 200),
        ((b"X-API-Key: wrong",), 400),
        ((b"Content-Type: text/plain",), 200),
    ],
    ids=["bad-id", "two-ids", "empty-key", "origin", "forwarded", "two-api-keys", "type"],
)
def test_unusual_headers(raw: Raw, shop: Owner, agent: str, headers: tuple[bytes, ...], status: int) -> None:
    check = json.dumps({"agent_id": agent, "action": "pay"}).encode()
    entry = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
    assert ask(raw, shop.key, check, *headers).status == status
    assert ask(raw, shop.key, entry, *headers, path=b"log").status == status


@pytest.mark.parametrize("path", [b"check", b"log"])
def test_a_request_id_of_the_caller_is_returned(raw: Raw, shop: Owner, agent: str, path: bytes) -> None:
    body = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
    assert ask(raw, shop.key, body, b"X-Request-ID: mine-1", path=path).headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("key", ["", "ak_wrong", "é"])
def test_a_wrong_key_is_refused(raw: Raw, agent: str, key: str) -> None:
    body = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
    assert ask(raw, key, body).status == ask(raw, key, body, path=b"log").status == 401


@pytest.mark.parametrize("path", [b"check", b"log"])
def test_a_body_cut_short_is_invalid(raw: Raw, shop: Owner, agent: str, path: bytes) -> None:
    body = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
    for cut in (1, 2, 20):
        assert ask(raw, shop.key, body[:-cut], path=path).status == 400


def test_a_check_in_pieces_is_answered(raw: Raw, shop: Owner, agent: str) -> None:
    """Wherever it is cut."""
    for path, said in ((b"check", "allowed"), (b"log", "action")):
        body = json.dumps({"agent_id": agent, "action": "pay", "status": "success"}).encode()
        whole_request = request(shop.key, body, path=path)
        for at in range(1, len(whole_request), 23):
            assert said in raw.send(whole_request[:at], whole_request[at:]).answer().json()


def test_answers_come_in_order(raw: Raw, shop: Owner, agent: str) -> None:
    """Requests sent without waiting are answered in their order, also those that a person must approve."""
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
    """Also one that a person must approve."""
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
