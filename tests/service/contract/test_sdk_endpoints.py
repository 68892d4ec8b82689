"""The endpoints that the SDK calls: decisions, approvals and log entries, with the exact texts of the responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.inside import Clock, InsideGateway
from support.sdk_client import SdkClient
from support.shapes import problem

pytestmark = pytest.mark.sqlite_only("the gateway's clock is set, which PostgreSQL's cannot be")


@pytest.fixture(scope="module")
def make_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], SdkClient]]:
    clock = Clock()
    folder = tmp_path_factory.mktemp("gateway")
    with InsideGateway(folder, management_requests_per_minute=1_000_000) as gateway, clock.ruling():
        yield lambda: SdkClient(gateway, clock)


@pytest.fixture
def client(make_client: Callable[[], SdkClient]) -> SdkClient:
    """An organization of its own for each test."""
    return make_client()


def blocked(reason: str) -> dict[str, Any]:
    return {"allowed": False, "requires_approval": False, "reason": reason, "approval_id": None}


ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
HELD = "Action 'mail.send' needs human approval"


def test_actions_without_permission_are_denied(client: SdkClient) -> None:
    client.permit("math.add")
    response = client.send_check("math.add", {"a": 1})
    assert response.body == ALLOWED
    assert response.headers["x-decision-id"]
    assert response.headers["x-api-version"] == "2026-11-20"
    assert client.check("math.sub") == blocked("Agent has no permission for action 'math.sub'")
    client.forbid("math.add")
    assert client.check("math.add") == blocked("Agent has no permission for action 'math.add'")


def test_unknown_and_disabled_agents_are_denied(client: SdkClient) -> None:
    client.permit("math.add")
    unknown = client.check("math.add", agent_id="0199a3f2-ffff-7000-8000-00000000000a")
    assert unknown == blocked("Agent not found: no agent of this organization has the agent_id given")
    named = client.check("math.add", agent_id="support-bot")
    assert named == blocked(
        "Agent not found: no agent of this organization has the agent_id given; 'support-bot' is not an agent id: "
        "expected a UUID, see 'toolgate agents list'"
    )
    client.set_active(is_active=False)
    assert client.check("math.add") == blocked("Agent is inactive")
    client.set_active(is_active=True)
    assert client.check("math.add") == ALLOWED


LIMIT = "the maximum of 100.5 for action 'pay'"


@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        (100.5, None),
        (0, None),
        (100.51, f"Amount 100.51 is above {LIMIT}"),
        (1e3, f"Amount 1000 is above {LIMIT}"),
        (-1, f"context.amount must be a non-negative number, not -1, because of {LIMIT}"),
        (None, f"context.amount must be a non-negative number, not null, because of {LIMIT}"),
        (True, f"context.amount must be a non-negative number, not true, because of {LIMIT}"),
        ("9", f"context.amount must be a non-negative number, not '9', because of {LIMIT}"),
        ("x" * 99, f"context.amount must be a non-negative number, not {'x' * 40!r}, because of {LIMIT}"),
        ([1], f"context.amount must be a non-negative number, not a list, because of {LIMIT}"),
        ({}, f"context.amount must be a non-negative number, not an object, because of {LIMIT}"),
    ],
)
def test_amounts_are_compared_exactly(client: SdkClient, amount: Any, reason: str | None) -> None:
    client.permit("pay", max_amount=100.5)
    assert client.check("pay", {"amount": amount}) == (ALLOWED if reason is None else blocked(reason))


def test_missing_amount_is_denied_only_if_required(client: SdkClient) -> None:
    client.permit("pay", max_amount=100)
    assert client.check("pay", {}) == ALLOWED
    client.permit("pay", max_amount=100, amount_required=True)
    limit = "the maximum of 100 for action 'pay'"
    assert client.check("pay") == blocked(f"context.amount is required because of {limit}")


def test_approval_allows_the_same_call_once(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    first = client.check("mail.send", {"to": "a", "n": 1})
    assert (first["allowed"], first["requires_approval"], first["reason"]) == (False, True, HELD)
    assert client.check("mail.send", {"n": 1.0, "to": "a"})["approval_id"] == first["approval_id"]
    assert client.request_approval(context={"to": "b", "n": 1}) != first["approval_id"]
    assert client.approve(first["approval_id"], note="fine")
    assert client.approval(first["approval_id"])["status"] == "approved"
    assert client.check("mail.send", {"to": "a", "n": 1}) == ALLOWED
    assert client.approval(first["approval_id"])["status"] == "consumed"
    assert client.request_approval(context={"to": "a", "n": 1}) != first["approval_id"]
    assert not client.approve(first["approval_id"])


def test_approval_of_1_does_not_cover_true(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    asked = client.request_approval(context={"n": 1})
    assert client.approve(asked)
    assert client.request_approval(context={"n": True}) != asked


def test_rejection_is_remembered_for_five_minutes(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    asked = client.request_approval(context={"to": "a"})
    assert client.deny(asked, note="not today")
    assert client.check("mail.send", {"to": "a"}) == blocked("Denied by a person: not today")
    named = client.check("mail.send", {"to": "a"}, approval_id=asked)
    assert named == blocked("Denied by a person: not today")
    shown = client.approval(asked)
    assert (shown["status"], shown["note"]) == ("denied", "not today")
    silent = client.request_approval(context={"to": "b"})
    assert client.deny(silent)
    assert client.check("mail.send", {"to": "b"}) == blocked("Denied by a person")
    client.advance(301)
    assert client.request_approval(context={"to": "a"}) != asked


def test_rejected_call_with_an_id_stays_denied(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    call = {"call_id": "call-1", "run_id": "run-1"}
    asked = client.request_approval(context={"to": "a"}, **call)
    assert client.deny(asked, note="not today")
    client.advance(24 * 3600)
    denial = blocked("Denied by a person: not today")
    assert client.check("mail.send", {"to": "a"}, **call) == denial
    assert client.check("mail.send", {"to": "a"}, approval_id=asked, **call) == denial
    assert client.request_approval(context={"to": "a"}, call_id="call-2", run_id="run-1") != asked


@pytest.mark.parametrize("approved", [False, True], ids=["pending", "approved"])
def test_call_rejected_in_the_framework_stays_denied(client: SdkClient, approved: bool) -> None:
    client.permit("mail.send", held=True)
    call = {"call_id": "call-1", "run_id": "run-1"}
    asked = client.request_approval(context={"to": "a"}, **call)
    if approved:
        assert client.approve(asked)
    found = client.send_check("mail.send", {"to": "a"}, dry_run=True, **call)
    assert (found.headers.get("x-approval-id") or found.body["approval_id"]) == asked
    response = client.send("POST", f"/sdk/approvals/{asked}/cancel?rejected=true")
    assert (response.status, response.body["status"]) == (200, "cancelled")
    rejected = blocked("Call 'call-1' was rejected in the agent's framework")
    assert client.check("mail.send", {"to": "a"}, **call) == rejected
    client.advance(24 * 3600)
    assert client.check("mail.send", {"to": "a"}, **call) == rejected
    assert client.request_approval(context={"to": "a"}, call_id="call-2", run_id="run-1") != asked


def test_withdrawn_call_may_be_asked_again(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    call = {"call_id": "call-1", "run_id": "run-1"}
    asked = client.request_approval(context={"to": "a"}, **call)
    assert client.send("POST", f"/sdk/approvals/{asked}/cancel").status == 200
    assert client.request_approval(context={"to": "a"}, **call) != asked


def test_undecided_and_unused_approvals_expire(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    undecided, unused = client.request_approval(context={"n": 1}), client.request_approval(context={"n": 2})
    assert client.approve(unused)
    client.advance(3601)
    assert client.approval(unused)["status"] == "expired"
    client.advance(24 * 3600)
    assert client.approval(undecided)["status"] == "expired"
    assert not client.approve(undecided)
    why = f"Approval {undecided!r} is expired; check again without approval_id"
    assert client.check("mail.send", {"n": 1}, approval_id=undecided) == blocked(why)
    assert client.request_approval(context={"n": 1}) != undecided


def test_approval_covers_no_other_action_or_context(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    client.permit("math.add")
    asked = client.request_approval(context={"n": 1})
    assert client.approve(asked)
    for action, approval_id, context in [
        ("mail.send", asked, {"n": 2}),
        ("math.add", asked, {"n": 1}),
        ("mail.send", "nobodys", {"n": 1}),
    ]:
        why = (
            f"Approval {approval_id!r} does not belong to this agent, action and context; "
            "check again without approval_id"
        )
        assert client.check(action, context, approval_id=approval_id) == blocked(why)
    assert client.check("mail.send", {"n": 1}, approval_id=asked) == ALLOWED


def test_edited_approval_covers_only_the_edited_call(client: SdkClient) -> None:
    client.permit("mail.send", held=True, max_amount=100)
    asked = client.request_approval(context={"amount": 90, "to": "a"})
    assert not client.approve(asked, context={"amount": 101, "to": "a"})
    assert client.approve(asked, context={"amount": 50, "to": "a"})
    shown = client.approval(asked)
    assert (shown["status"], shown["approved_context"]) == ("replaced", {"amount": 50, "to": "a"})
    successor = shown["replaced_by"]
    assert client.approval(successor)["status"] == "approved"
    assert client.request_approval(context={"amount": 50, "to": "a"}) != successor
    assert client.check("mail.send", {"amount": 50, "to": "a"}, approval_id=successor) == ALLOWED
    why = f"Approval {successor!r} is consumed; check again without approval_id"
    again = client.check("mail.send", {"amount": 50, "to": "a"}, approval_id=successor)
    assert again == blocked(why)


def test_hidden_values_cannot_be_edited(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    hidden = {"$digest": "hmac-sha256:aa", "bytes": 3}
    asked = client.request_approval(context={"to": "a", "body": hidden})
    assert not client.approve(asked, context={"to": "a", "body": "mine"})
    assert client.approve(asked, context={"to": "b", "body": hidden})


def test_deleted_permission_cancels_its_approvals_for_good(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    waiting, approved = client.request_approval(context={"n": 1}), client.request_approval(context={"n": 2})
    assert client.approve(approved)
    client.forbid("mail.send")
    assert {client.approval(one)["status"] for one in (waiting, approved)} == {"cancelled"}
    client.permit("mail.send", held=True)
    third = client.request_approval(context={"n": 2})
    assert third != approved
    client.set_active(is_active=False)
    client.set_active(is_active=True)
    assert client.approval(third)["status"] == "cancelled"


def test_changed_permission_takes_precedence_over_an_approval(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    asked = client.request_approval(context={"amount": 90})
    assert client.approve(asked)
    client.permit("mail.send", held=True, max_amount=50)
    why = "Amount 90 is above the maximum of 50 for action 'mail.send'"
    assert client.check("mail.send", {"amount": 90}) == blocked(why)
    client.permit("mail.send", max_amount=100)
    assert client.check("mail.send", {"amount": 90}) == ALLOWED
    assert client.approval(asked)["status"] == "approved"


def test_approval_is_bound_to_call_and_run(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    asked = client.request_approval(context={"n": 1}, call_id="c1", run_id="r1")
    assert client.request_approval(context={"n": 1}, call_id="c1", run_id="r2") != asked
    assert client.approve(asked)
    assert client.request_approval(context={"n": 1}, call_id="c2", run_id="r1") != asked
    assert client.check("mail.send", {"n": 1}, call_id="c1", run_id="r1") == ALLOWED
    for dry in (True, False):
        again = client.send_check("mail.send", {"n": 1}, call_id="c1", run_id="r1", dry_run=dry)
        assert again.body == blocked(
            "Call 'c1' has already been allowed once; use a new call_id for a new call"
        )
        assert again.headers["x-call-let-through"] == "true"
    for other in ("mail.send", "nobody.granted"):
        assert "x-call-let-through" not in client.send_check(other, {"n": 2}, call_id="c3").headers


def test_dry_run_changes_nothing(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    dry = client.check("mail.send", {"n": 1}, dry_run=True)
    assert (dry["requires_approval"], dry["reason"], dry["approval_id"]) == (True, HELD, None)
    asked = client.request_approval(context={"n": 1})
    assert client.approve(asked)
    assert client.check("mail.send", {"n": 1}, dry_run=True) == ALLOWED
    assert client.check("mail.send", {"n": 1}) == ALLOWED


def test_retried_check_consumes_no_second_approval(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    attempt = {"Idempotency-Key": "k"}
    assert client.approve(client.request_approval(context={"n": 1}))
    first = client.send_check("mail.send", {"n": 1}, headers=attempt)
    again = client.send_check("mail.send", {"n": 1}, headers=attempt)
    assert first.body == again.body == ALLOWED
    assert first.headers["x-decision-id"] == again.headers["x-decision-id"]
    assert client.check("mail.send", {"n": 1})["requires_approval"] is True
    client.advance(601)
    assert client.send_check("mail.send", {"n": 1}, headers=attempt).body["requires_approval"] is True


def test_at_most_a_hundred_requests_of_an_agent_are_pending(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    for number in range(100):
        client.request_approval(context={"n": number})
    assert client.check("mail.send", {"n": 100}) == blocked(
        "100 requests of this agent wait for approval, which is the maximum (TOOLGATE_PENDING_PER_AGENT); "
        "ask an approver to decide some of these requests, or cancel some, then check again"
    )


def test_cancelled_request_cannot_be_used_or_cancelled_again(client: SdkClient) -> None:
    client.permit("mail.send", held=True)
    asked = client.request_approval(context={"to": "a"}, run_id="r")
    shown = client.approval(asked)
    assert {name: shown[name] for name in ("id", "agent_id", "action", "status", "context", "run_id")} == {
        "id": asked,
        "agent_id": client.agent_id,
        "action": "mail.send",
        "status": "pending",
        "context": {"to": "a"},
        "run_id": "r",
    }
    assert set(shown) == {
        *("id", "agent_id", "action", "status", "context", "run_id", "call_id", "note"),
        *("created_at", "expires_at", "decided_at", "replaced_by", "approved_context"),
    }
    response = client.send("POST", f"/sdk/approvals/{asked}/cancel")
    assert (response.status, response.body["status"]) == (200, "cancelled")
    assert client.approval(asked, wait=60)["status"] == "cancelled"
    again = client.send("POST", f"/sdk/approvals/{asked}/cancel")
    assert (again.status, again.body) == (409, problem(409, "Approval is no longer open: it is cancelled"))
    assert not client.approve(asked)
    unknown = client.send("GET", "/sdk/approvals/0199a3f2-ffff-7000-8000-00000000000a")
    assert (unknown.status, unknown.body) == (404, problem(404, "Approval not found"))


@pytest.mark.parametrize("key", ["ak_" + "x" * 37, ""])
@pytest.mark.parametrize(
    "path", ["POST /sdk/check", "POST /sdk/log", "POST /sdk/logs", "GET /sdk/approvals/x"]
)
def test_invalid_api_key_is_rejected_by_every_endpoint(client: SdkClient, key: str, path: str) -> None:
    method, _, target = path.partition(" ")
    response = client.send(method, target, {} if method == "POST" else None, {"X-API-Key": key})
    assert (response.status, response.body) == (
        401,
        problem(401, "Invalid API key" if key else "Missing API key"),
    )


@pytest.mark.parametrize("status", ["success", "failed", "pending", "denied"])
def test_log_entry_is_returned_as_sent(client: SdkClient, status: str) -> None:
    context = {"a": 1, "text": "ä"}
    response = client.log("any.action", status, context=context, run_id="r", ip_address="192.0.2.1")
    assert response.status == 200
    told = {name: response.body[name] for name in ("agent_id", "action", "status", "context")}
    assert told == {
        "agent_id": client.agent_id,
        "action": "any.action",
        "status": status,
        "context": context,
    }
    assert set(response.body) == {*told, "id", "organization_id", "created_at"}
    assert client.log("any.action").body["context"] is None


def test_log_entry_is_idempotent_for_a_day(client: SdkClient) -> None:
    first = client.log("a.b", key="k", context={"n": 1})
    again = client.log("a.b", key="k", context={"n": 1})
    assert first.body == again.body
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-mismatch" not in again.headers
    other = client.log("a.c", key="k")
    assert (other.body, other.headers["idempotency-mismatch"]) == (first.body, "true")
    client.advance(24 * 3600 + 1)
    assert client.log("a.b", key="k").body["id"] != first.body["id"]


def test_log_entries_of_unknown_agents_are_rejected(client: SdkClient) -> None:
    response = client.log("a.b", agent_id="0199a3f2-ffff-7000-8000-00000000000a")
    assert (response.status, response.body) == (404, problem(404, "Agent not found"))
    client.set_active(is_active=False)
    assert client.log("a.b").status == 200


def test_batch_has_a_result_for_each_entry(client: SdkClient) -> None:
    good = {"agent_id": client.agent_id, "action": "a.b", "status": "success", "idempotency_key": "k"}
    bad = {**good, "status": "odd", "idempotency_key": "other"}
    response = client.send("POST", "/sdk/logs", {"entries": [good, bad, good, 3]})
    results = response.body["results"]
    assert [one["status"] for one in results] == [200, 400, 200, 400]
    assert results[0]["entry"] == results[2]["entry"]
    assert results[2]["replayed"] is True
    assert "detail" in results[1]
    assert results[3] == {"status": 400, "detail": {"entry": ["must be an object"]}}
    for body, complaint in [
        ({}, "This field is required"),
        ({"entries": 1}, "must be a list"),
        ({"entries": [good] * 101}, "must contain at most 100 entries, not 101"),
    ]:
        refused = client.send("POST", "/sdk/logs", body)
        assert (refused.status, refused.body) == (400, problem(400, {"entries": [complaint]}))


DEEP: Any = []
for _ in range(40):
    DEEP = [DEEP]

REQUIRED = "This field is required"
REFERENCE = "must be 1-255 printable characters"
ACTION = "must be 1-255 visible ASCII characters"
REASON = "must be at most 1000 printable characters"
STATUS = "must be one of success, failed, pending, denied"


@pytest.mark.parametrize(
    ("path", "fields", "problems"),
    [
        ("/sdk/check", {"agent_id": None}, {"agent_id": REQUIRED}),
        ("/sdk/check", {"agent_id": 3}, {"agent_id": "must be a string"}),
        ("/sdk/check", {"action": ""}, {"action": REQUIRED}),
        ("/sdk/check", {"action": "with space"}, {"action": ACTION}),
        ("/sdk/check", {"action": "x" * 256}, {"action": ACTION}),
        ("/sdk/check", {"context": []}, {"context": "must be an object"}),
        ("/sdk/check", {"context": {"deep": DEEP}}, {"context": "must not be nested deeper than 32 levels"}),
        (
            "/sdk/check",
            {"context": {"large": "x" * 70_000}},
            {"context": "must not be larger than 65536 bytes"},
        ),
        ("/sdk/check", {"approval_id": ""}, {"approval_id": REFERENCE}),
        ("/sdk/check", {"run_id": "x" * 256}, {"run_id": REFERENCE}),
        ("/sdk/check", {"reason": "x" * 1001}, {"reason": REASON}),
        ("/sdk/check", {"reason": 7}, {"reason": REASON}),
        ("/sdk/check", {"reason": "a\x1bb"}, {"reason": REASON}),
        ("/sdk/check", {"dry_run": "yes"}, {"dry_run": "must be true or false"}),
        ("/sdk/log", {"status": None}, {"status": REQUIRED}),
        ("/sdk/log", {"status": "odd", "action": 1}, {"status": STATUS, "action": "must be a string"}),
        ("/sdk/log", {"ip_address": "nowhere"}, {"ip_address": "must be an IP address"}),
        (
            "/sdk/log",
            {"occurred_at": "yesterday"},
            {"occurred_at": "must be an ISO 8601 timestamp, such as 2026-01-31T12:00:00Z"},
        ),
        ("/sdk/log", {"approval_id": 1}, {"approval_id": REFERENCE}),
    ],
)
def test_invalid_fields_are_named(
    client: SdkClient, path: str, fields: dict[str, Any], problems: dict[str, str]
) -> None:
    body = {"agent_id": client.agent_id, "action": "a.b", "status": "success", **fields}
    response = client.send("POST", path, body)
    detail = {name: [problem] for name, problem in problems.items()}
    assert (response.status, response.body) == (400, problem(400, detail))


def test_permissions_of_an_agent_are_listed(client: SdkClient) -> None:
    client.permit("math.add")
    client.permit("pay", held=True, max_amount=12.5, amount_required=True)
    response = client.send("GET", f"/sdk/permissions?agent_id={client.agent_id}")
    names = ("agent_id", "action", "requires_approval", "max_amount", "amount_required")
    assert [{name: one[name] for name in names} for one in response.body] == [
        dict(zip(names, (client.agent_id, "pay", True, 12.5, True), strict=True)),
        dict(zip(names, (client.agent_id, "math.add", False, None, False), strict=True)),
    ]
    client.set_active(is_active=False)
    assert client.send("GET", f"/sdk/permissions?agent_id={client.agent_id}").body == []
    unknown = client.send("GET", "/sdk/permissions?agent_id=0199a3f2-ffff-7000-8000-00000000000a")
    assert (unknown.status, unknown.body) == (404, problem(404, "Agent not found"))
