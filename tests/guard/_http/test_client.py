from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest

from toolgate import ConfigurationError, GatewayProtocolError, GatewayUnavailable, GuardError
from toolgate._call import new_entry
from toolgate._http.client import AsyncGatewayClient, GatewayClient
from toolgate._http.exchange import Request
from toolgate._http.retry import retry_after
from toolgate._identity import Identity
from toolgate._models import Approval, Check
from toolgate._settings import Settings

KEY = "ak_" + "k3y" * 12 + "z"
CHECK = Check("a.b", Identity("agent-1", "run-1"), {"amount": 5})
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
BLOCKED = {**ALLOWED, "allowed": False, "reason": "no"}


class Time:
    """A clock that moves only when something sleeps, or a request is said to take long."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


class Both:
    """The synchronous and the asynchronous client behind one asynchronous face."""

    def __init__(self, kind: str, gateway: Callable[[httpx.Request], httpx.Response], time: Time) -> None:
        settings = Settings("https://gateway.example/base", KEY, "agent-1", 5.0, "httpx")
        transport = httpx.MockTransport(gateway)
        self._sync = GatewayClient(settings, transport=transport, clock=time.clock, sleep=time.sleep)
        self._async = AsyncGatewayClient(settings, transport=transport, clock=time.clock, sleep=time.asleep)
        self._kind = kind

    async def call(self, operation: str, *args: Any) -> Any:
        if self._kind == "sync":
            return getattr(self._sync, operation)(*args)
        return await getattr(self._async, operation)(*args)

    async def aclose(self) -> None:
        self._sync.close()
        await self._async.aclose()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=["sync", "async"])
async def client(request: pytest.FixtureRequest, scripted: Scripted, time: Time) -> Any:
    both = Both(request.param, scripted, time)
    yield both
    await both.aclose()


class Scripted:
    """Answers from a list; the last answer repeats."""

    def __init__(self) -> None:
        self.answers: list[Any] = [httpx.Response(200, json=ALLOWED)]
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        # A fresh object each time: a response is read once.
        stream = answer.stream if "Content-Encoding" in answer.headers else httpx.ByteStream(answer.content)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream)


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.mark.parametrize(
    ("answer", "said", "already_used"),
    [
        (BLOCKED, "true", True),
        (BLOCKED, "yes", False),
        (BLOCKED, None, False),
        (ALLOWED, "true", False),
    ],
)
async def test_decision_contains_whether_the_approval_was_used_before(
    client: Both, scripted: Scripted, answer: dict[str, Any], said: str | None, already_used: bool
) -> None:
    headers = {} if said is None else {"X-Call-Let-Through": said}
    scripted.answers = [httpx.Response(200, json=answer, headers=headers)]
    assert (await client.call("check", CHECK)).already_used is already_used


@pytest.mark.parametrize(("sent", "code"), [({"X-Reason-Code": "frozen"}, "frozen"), ({}, None)], ids=str)
async def test_decision_contains_the_reason_code_if_the_gateway_sent_one(
    client: Both, scripted: Scripted, sent: dict[str, str], code: str | None
) -> None:
    scripted.answers = [httpx.Response(200, json=BLOCKED, headers=sent)]
    assert (await client.call("check", CHECK)).reason_code == code


@pytest.mark.parametrize(("sent", "rule"), [({"X-Rule-ID": "r-1"}, "r-1"), ({}, None)], ids=str)
async def test_decision_contains_the_rule_if_the_gateway_sent_one(
    client: Both, scripted: Scripted, sent: dict[str, str], rule: str | None
) -> None:
    scripted.answers = [httpx.Response(200, json=BLOCKED, headers=sent)]
    assert (await client.call("check", CHECK)).rule == rule


@pytest.mark.parametrize(
    ("sent", "left"),
    [("12.50", Decimal("12.5")), ("-3", Decimal(-3)), ("much", None), (None, None)],
    ids=str,
)
async def test_decision_contains_what_is_left_of_budgets(
    client: Both, scripted: Scripted, sent: str | None, left: Decimal | None
) -> None:
    headers = {} if sent is None else {"X-Budget-Left": sent}
    scripted.answers = [httpx.Response(200, json=ALLOWED, headers=headers)]
    assert (await client.call("check", CHECK)).budget_left == left


async def test_check_request(client: Both, scripted: Scripted) -> None:
    """It contains key, agent, action, context, run and approval, and an Idempotency-Key of its own."""
    scripted.answers = [httpx.Response(200, json=ALLOWED, headers={"X-Decision-ID": "d-1"})]
    decision = await client.call("check", CHECK)
    await client.call("check", Check("a.b", Identity("agent-1"), {}, "appr-1"))
    first, second = scripted.requests
    assert decision.allowed
    assert decision.decision_id == "d-1"
    assert first.url == "https://gateway.example/base/sdk/check"
    assert first.headers["X-API-Key"] == KEY
    assert first.content == b'{"agent_id":"agent-1","action":"a.b","context":{"amount":5},"run_id":"run-1"}'
    assert second.content == b'{"agent_id":"agent-1","action":"a.b","context":{},"approval_id":"appr-1"}'
    assert len(first.headers["Idempotency-Key"]) == 32
    assert first.headers["Idempotency-Key"] != second.headers["Idempotency-Key"]


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("gone"),
        httpx.Response(500),
        httpx.Response(503, text="<html>"),
        httpx.Response(429),
    ],
    ids=repr,
)
async def test_temporary_failures_are_retried(
    client: Both, scripted: Scripted, time: Time, failure: Any
) -> None:
    """Faults, 429 and 5xx are tried again with the same Idempotency-Key after a short pause."""
    scripted.answers = [failure, failure, httpx.Response(200, json=ALLOWED)]
    assert (await client.call("check", CHECK)).allowed
    assert len({each.headers["Idempotency-Key"] for each in scripted.requests}) == 1
    assert len(time.pauses) == 2
    assert all(0 < pause <= 0.2 for pause in time.pauses)


async def test_deadline_covers_all_attempts_and_pauses(client: Both, scripted: Scripted, time: Time) -> None:
    scripted.answers = [httpx.ConnectError("refused")]
    with pytest.raises(GatewayUnavailable, match=r"gateway\.example.*refused"):
        await client.call("check", CHECK)
    assert 2 < time.now - 100 <= 5
    assert len(scripted.requests) == len(time.pauses) + 1


async def test_request_is_retried_a_thousand_times_before_a_long_deadline(
    scripted: Scripted, time: Time
) -> None:
    settings = Settings("https://gateway.example", KEY, "agent-1", 7200.0, "httpx")
    scripted.answers = [httpx.ConnectError("refused")]
    patient = GatewayClient(
        settings, transport=httpx.MockTransport(scripted), clock=time.clock, sleep=time.sleep
    )
    with pytest.raises(GatewayUnavailable):
        patient.check(CHECK)
    assert len(time.pauses) > 1100
    assert time.now - 100 > 7190


async def test_time_out_of_an_attempt_is_what_is_left_of_the_deadline(
    client: Both, scripted: Scripted, time: Time
) -> None:
    scripted.answers = [httpx.Response(429, headers={"Retry-After": "3"}), httpx.Response(200, json=ALLOWED)]
    await client.call("check", CHECK)
    assert [each.extensions["timeout"]["read"] for each in scripted.requests] == [5.0, 2.0]


async def test_pause_is_that_of_retry_after(client: Both, scripted: Scripted, time: Time) -> None:
    scripted.answers = [httpx.Response(429, headers={"Retry-After": "2"}), httpx.Response(200, json=ALLOWED)]
    assert (await client.call("check", CHECK)).allowed
    assert time.pauses == [2.0]


async def test_retry_after_beyond_the_deadline_raises_at_once(
    client: Both, scripted: Scripted, time: Time
) -> None:
    detail = {"detail": "Rate limit exceeded. Retry after 30 seconds"}
    scripted.answers = [httpx.Response(429, json=detail, headers={"Retry-After": "30"})]
    with pytest.raises(GatewayUnavailable, match="Retry after 30") as raised:
        await client.call("check", CHECK)
    assert raised.value.status == 429
    assert time.pauses == []


@pytest.mark.parametrize(
    "header", ["0", "-5", "1.5", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 99 Oct 2099 07:28:00 GMT"]
)
async def test_retry_after_of_zero_or_invalid_causes_no_busy_loop(
    client: Both, scripted: Scripted, time: Time, header: str
) -> None:
    scripted.answers = [httpx.Response(429, headers={"Retry-After": header})]
    with pytest.raises(GatewayUnavailable):
        await client.call("check", CHECK)
    assert len(scripted.requests) < 12
    assert all(pause >= 0.05 for pause in time.pauses)


def test_retry_after_is_a_date() -> None:
    """With or without the name of the time zone."""
    now = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)
    assert retry_after("Wed, 21 Oct 2026 07:28:03 GMT", now) == 3.0
    assert retry_after("Wed, 21 Oct 2026 07:28:03 -0000", now) == 3.0
    assert retry_after("Wed, 21 Oct 2026 07:27:00 GMT", now) == 0.0


def answer(**changes: Any) -> httpx.Response:
    return raw(json.dumps({**ALLOWED, **changes}))


def raw(text: str, kind: str = "application/json") -> httpx.Response:
    return httpx.Response(200, text=text, headers={"Content-Type": kind})


def coded(encoding: str, **changes: Any) -> httpx.Response:
    text = json.dumps({**ALLOWED, **changes}, ensure_ascii=False)
    return httpx.Response(200, content=text.encode(encoding), headers={"Content-Type": "application/json"})


def packed(content: bytes) -> httpx.Response:
    """An answer whose content is not what its header says; a real one is unpacked when it is read."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    return httpx.Response(200, headers=headers, stream=httpx.ByteStream(content))


VIOLATIONS = {
    "allowed is 1": answer(allowed=1),
    "allowed is 'true'": answer(allowed="true"),
    "allowed is null": answer(allowed=None),
    "allowed but held": answer(requires_approval=True, approval_id="x"),
    "allowed with a reason": answer(reason="but"),
    "allowed with an approval": answer(approval_id="x"),
    "held without id": answer(allowed=False, requires_approval=True, reason="r"),
    "held with empty id": answer(allowed=False, requires_approval=True, reason="r", approval_id=""),
    "held with a number as id": answer(allowed=False, requires_approval=True, reason="r", approval_id=1),
    "blocked without reason": answer(allowed=False),
    "blocked with an approval": answer(allowed=False, reason="r", approval_id="x"),
    "a field missing": httpx.Response(200, json={"allowed": True}),
    "a list": httpx.Response(200, json=[ALLOWED]),
    "a member twice": raw(
        '{"allowed":false,"allowed":true,"requires_approval":false,"reason":null,"approval_id":null}'
    ),
    "html": raw("<html>login</html>", "text/html"),
    "json called html": raw(answer().text, "text/html"),
    "no json": raw("allowed"),
    "utf-16": coded("utf-16"),
    "utf-16 without a mark": coded("utf-16-le"),
    "utf-32": coded("utf-32"),
    "no utf-8": coded("latin-1", allowed=False, reason="\xe9"),
    "half a character as approval": answer(
        allowed=False, requires_approval=True, reason="r", approval_id="\ud800"
    ),
    "half a character as reason": answer(allowed=False, reason="\ud800"),
    "said to be packed": packed(answer().content),
    "endless nesting": raw("[" * 100_000),
    "empty": raw(""),
    "no content": httpx.Response(204),
    "a redirect": httpx.Response(302, headers={"Location": "https://evil.example/"}),
    "moved for good": httpx.Response(308, headers={"Location": "https://evil.example/"}),
    "bad request": httpx.Response(400, json={"detail": {"agent_id": ["This field is required."]}}),
    "not found": httpx.Response(404, json={"detail": "Not Found"}),
    "created": httpx.Response(201, json=ALLOWED),
}


@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS.keys())
async def test_undocumented_response_is_a_protocol_error(
    client: Both, scripted: Scripted, violation: httpx.Response
) -> None:
    """It is not retried."""
    scripted.answers = [violation]
    with pytest.raises(GatewayProtocolError, match=r"gateway\.example") as raised:
        await client.call("check", CHECK)
    assert raised.value.status == violation.status_code
    assert len(scripted.requests) == 1
    assert {each.url.host for each in scripted.requests} == {"gateway.example"}


@pytest.mark.parametrize(
    "detail", ["Invalid API key", "Missing API key", "Organization is not active", f"bad {KEY}"]
)
async def test_rejected_api_key_is_a_configuration_error(
    client: Both, scripted: Scripted, detail: str
) -> None:
    """The message contains the gateway's detail but not the key."""
    scripted.answers = [httpx.Response(401, json={"detail": detail})]
    with pytest.raises(ConfigurationError) as raised:
        await client.call("check", CHECK)
    assert detail.replace(KEY, "ak_…k3yz") in str(raised.value)
    assert KEY not in str(raised.value)
    assert "TOOLGATE_API_KEY" in str(raised.value)


async def test_log_entry_has_its_own_idempotency_key(client: Both, scripted: Scripted) -> None:
    """The result is the gateway's entry."""
    entry = new_entry(
        action="a.b", agent_id="g", status="success", context={"n": 1}, approval_id="x", run_id=None
    )
    stored = {
        "id": "1",
        "agent_id": "g",
        "action": "a.b",
        "status": "success",
        "context": {"n": 1},
        "extra": 2,
    }
    scripted.answers = [httpx.Response(200, json=stored)]
    assert await client.call("log", entry) == stored
    sent = scripted.requests[0]
    assert sent.headers["Idempotency-Key"] == entry.key
    assert entry.body.keys() == {"agent_id", "action", "status", "context", "occurred_at", "approval_id"}


async def test_plan_limit_is_a_protocol_error_with_message_and_status(
    client: Both, scripted: Scripted
) -> None:
    detail = {"error": "plan_limit_exceeded", "message": "1000/1000 logs", "limit_type": "logs"}
    scripted.answers = [httpx.Response(403, json={"detail": detail})]
    entry = new_entry(action="a.b", agent_id="g", status="success", context={})
    with pytest.raises(GatewayProtocolError, match="1000/1000 logs") as raised:
        await client.call("log", entry)
    assert raised.value.status == 403


async def test_time_out_of_a_long_poll_is_the_wait_and_the_deadline(client: Both, scripted: Scripted) -> None:
    scripted.answers = [
        httpx.Response(200, json={"id": "x", "status": "denied", "note": "no", "context": {}})
    ]
    assert await client.call("approval", "a/../b?c", 30) == Approval("denied", "no", context={})
    sent = scripted.requests[0]
    assert sent.url.raw_path == b"/base/sdk/approvals/a%2F..%2Fb%3Fc?wait=30"
    assert sent.extensions["timeout"]["read"] == 35.0


async def test_cancel_has_its_own_deadline(client: Both, scripted: Scripted) -> None:
    scripted.answers = [httpx.Response(200, json={"id": "x", "status": "cancelled"})]
    assert await client.call("cancel", "a/../b?c", 2.0) == Approval("cancelled")
    sent = scripted.requests[0]
    assert (sent.method, sent.url.raw_path) == ("POST", b"/base/sdk/approvals/a%2F..%2Fb%3Fc/cancel")
    assert (sent.content, sent.headers["X-API-Key"]) == (b"", KEY)
    assert sent.extensions["timeout"]["read"] == 2.0


async def test_context_of_a_replaced_approval_keeps_all_digits(client: Both, scripted: Scripted) -> None:
    body = b'{"id": "x", "status": "replaced", "replaced_by": "y", "agent_id": "g", "action": "a.b",'
    body += (
        b' "context": {"n": 1}, "approved_context": {"n": 0.10000000000000000001, "big": 9007199254740993}}'
    )
    scripted.answers = [httpx.Response(200, content=body, headers={"content-type": "application/json"})]
    assert await client.call("approval", "x", 0) == Approval(
        "replaced",
        replaced_by="y",
        approved_context={"n": Decimal("0.10000000000000000001"), "big": 9007199254740993},
        context={"n": 1},
        action="a.b",
        agent_id="g",
    )


@pytest.mark.parametrize(
    "members",
    [
        {"replaced_by": 5},
        {"replaced_by": ""},
        {"approved_context": "all of it"},
        {"approved_context": [["n", 1]]},
        {"context": 5},
        {"action": None, "agent_id": 5},
    ],
    ids=repr,
)
async def test_approval_with_members_of_wrong_types_is_a_protocol_error(
    client: Both, scripted: Scripted, members: Any
) -> None:
    scripted.answers = [httpx.Response(200, json={"id": "x", "status": "replaced", **members})]
    with pytest.raises(GatewayProtocolError):
        await client.call("approval", "x", 0)


@pytest.mark.parametrize("status", ["maybe", None, 1])
async def test_unknown_approval_status_is_an_error(client: Both, scripted: Scripted, status: Any) -> None:
    scripted.answers = [httpx.Response(200, json={"id": "x", "status": status})]
    with pytest.raises(GuardError):
        await client.call("approval", "x", 0)


def test_representation_of_a_request_contains_neither_key_nor_arguments() -> None:
    shown = repr(Request("POST", "https://gateway.example", {"X-API-Key": KEY}, b"hunter22"))
    assert KEY not in shown
    assert "hunter22" not in shown


@pytest.mark.parametrize(
    "number", ["1e99999999999999999999999", "1e999999999", "-1.5E-401", "0." + "1" * 400]
)
async def test_approval_with_a_huge_number_is_a_protocol_error(
    client: Both, scripted: Scripted, number: str
) -> None:
    body = f'{{"id": "x", "status": "pending", "context": {{"n": {number}}}}}'
    scripted.answers = [httpx.Response(200, content=body, headers={"content-type": "application/json"})]
    with pytest.raises(GatewayProtocolError):
        await client.call("approval", "x", 0)
