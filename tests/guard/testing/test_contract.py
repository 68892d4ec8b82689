"""The fake gateway and the real one answer alike: one list of cases, put to both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.inside import Clock, InsideGateway
from support.places import FakePlace, Place, RealPlace

pytestmark = pytest.mark.sqlite_only("the real gateway's clock is set, which PostgreSQL's cannot be")

Make = Callable[[], Place]


@pytest.fixture(scope="module")
def make_real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    clock = Clock()
    with (
        InsideGateway(tmp_path_factory.mktemp("real"), management_requests_per_minute=1_000_000) as gateway,
        clock.ruling(),
    ):
        yield lambda: RealPlace(gateway, clock)


@pytest.fixture(params=["fake", "real"])
def place(request: pytest.FixtureRequest, make_real: Make) -> Place:
    """One gateway after the other."""
    return FakePlace() if request.param == "fake" else make_real()


def blocked(reason: str) -> dict[str, Any]:
    return {"allowed": False, "requires_approval": False, "reason": reason, "approval_id": None}


ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
HELD = "Action 'mail.send' needs human approval"


def test_allowed_and_unknown_actions(place: Place) -> None:
    """What was granted is allowed, with a decision's id; what was not is blocked by name, also after it was taken away."""
    place.permit("math.add")
    said = place.asked("math.add", {"a": 1})
    assert said.body == ALLOWED
    assert said.headers["x-decision-id"]
    assert said.headers["x-api-version"] == "2026-11-20"
    assert place.check("math.sub") == blocked("Agent has no permission for action 'math.sub'")
    place.forbid("math.add")
    assert place.check("math.add") == blocked("Agent has no permission for action 'math.add'")


def test_unknown_and_inactive_agents(place: Place) -> None:
    """Neither may do anything, and each is told why."""
    place.permit("math.add")
    unknown = place.check("math.add", agent_id="0199a3f2-ffff-7000-8000-00000000000a")
    assert unknown == blocked("Agent not found: no agent of this organization has the agent_id given")
    named = place.check("math.add", agent_id="support-bot")
    assert named == blocked(
        "Agent not found: no agent of this organization has the agent_id given; 'support-bot' is not an agent id: "
        "expected a UUID, see 'toolgate agents list'"
    )
    place.switch(on=False)
    assert place.check("math.add") == blocked("Agent is inactive")
    place.switch(on=True)
    assert place.check("math.add") == ALLOWED


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
def test_amounts(place: Place, amount: Any, reason: str | None) -> None:
    """An amount is compared exactly, and what is none is blocked in the same words."""
    place.permit("pay", max_amount=100.5)
    assert place.check("pay", {"amount": amount}) == (ALLOWED if reason is None else blocked(reason))


def test_an_amount_that_is_missing(place: Place) -> None:
    """It passes, unless the permission requires it."""
    place.permit("pay", max_amount=100)
    assert place.check("pay", {}) == ALLOWED
    place.permit("pay", max_amount=100, amount_required=True)
    limit = "the maximum of 100 for action 'pay'"
    assert place.check("pay") == blocked(f"context.amount is required because of {limit}")


def test_held_then_approved_once(place: Place) -> None:
    """The same check is one request while it waits, passes once when approved, and is held anew after that."""
    place.permit("mail.send", held=True)
    first = place.check("mail.send", {"to": "a", "n": 1})
    assert (first["allowed"], first["requires_approval"], first["reason"]) == (False, True, HELD)
    assert place.check("mail.send", {"n": 1.0, "to": "a"})["approval_id"] == first["approval_id"]
    assert place.held(context={"to": "b", "n": 1}) != first["approval_id"]
    assert place.approve(first["approval_id"], note="fine")
    assert place.approval(first["approval_id"])["status"] == "approved"
    assert place.check("mail.send", {"to": "a", "n": 1}) == ALLOWED
    assert place.approval(first["approval_id"])["status"] == "consumed"
    assert place.held(context={"to": "a", "n": 1}) != first["approval_id"]
    assert not place.approve(first["approval_id"])


def test_true_is_not_one(place: Place) -> None:
    """An approval of 1 is none of true."""
    place.permit("mail.send", held=True)
    asked = place.held(context={"n": 1})
    assert place.approve(asked)
    assert place.held(context={"n": True}) != asked


def test_denied(place: Place) -> None:
    """A person's no is told in their words for five minutes, and may then be asked again."""
    place.permit("mail.send", held=True)
    asked = place.held(context={"to": "a"})
    assert place.deny(asked, note="not today")
    assert place.check("mail.send", {"to": "a"}) == blocked("Denied by a person: not today")
    named = place.check("mail.send", {"to": "a"}, approval_id=asked)
    assert named == blocked("Denied by a person: not today")
    shown = place.approval(asked)
    assert (shown["status"], shown["note"]) == ("denied", "not today")
    silent = place.held(context={"to": "b"})
    assert place.deny(silent)
    assert place.check("mail.send", {"to": "b"}) == blocked("Denied by a person")
    place.advance(301)
    assert place.held(context={"to": "a"}) != asked


def test_denied_call_with_a_name_stays_denied(place: Place) -> None:
    place.permit("mail.send", held=True)
    call = {"call_id": "call-1", "run_id": "run-1"}
    asked = place.held(context={"to": "a"}, **call)
    assert place.deny(asked, note="not today")
    place.advance(24 * 3600)
    denial = blocked("Denied by a person: not today")
    assert place.check("mail.send", {"to": "a"}, **call) == denial
    assert place.check("mail.send", {"to": "a"}, approval_id=asked, **call) == denial
    assert place.held(context={"to": "a"}, call_id="call-2", run_id="run-1") != asked


@pytest.mark.parametrize("approved", [False, True], ids=["pending", "approved"])
def test_call_rejected_in_the_framework_stays_denied(place: Place, approved: bool) -> None:
    place.permit("mail.send", held=True)
    call = {"call_id": "call-1", "run_id": "run-1"}
    asked = place.held(context={"to": "a"}, **call)
    if approved:
        assert place.approve(asked)
    found = place.asked("mail.send", {"to": "a"}, dry_run=True, **call)
    assert (found.headers.get("x-approval-id") or found.body["approval_id"]) == asked
    said = place.send("POST", f"/sdk/approvals/{asked}/cancel?rejected=true")
    assert (said.status, said.body["status"]) == (200, "cancelled")
    rejected = blocked("Call 'call-1' was rejected in the agent's framework")
    assert place.check("mail.send", {"to": "a"}, **call) == rejected
    place.advance(24 * 3600)
    assert place.check("mail.send", {"to": "a"}, **call) == rejected
    assert place.held(context={"to": "a"}, call_id="call-2", run_id="run-1") != asked


def test_withdrawn_call_may_be_asked_again(place: Place) -> None:
    place.permit("mail.send", held=True)
    call = {"call_id": "call-1", "run_id": "run-1"}
    asked = place.held(context={"to": "a"}, **call)
    assert place.send("POST", f"/sdk/approvals/{asked}/cancel").status == 200
    assert place.held(context={"to": "a"}, **call) != asked


def test_expired(place: Place) -> None:
    """A request nobody decides runs out after a day, one nobody uses after an hour; both are told as that."""
    place.permit("mail.send", held=True)
    undecided, unused = place.held(context={"n": 1}), place.held(context={"n": 2})
    assert place.approve(unused)
    place.advance(3601)
    assert place.approval(unused)["status"] == "expired"
    place.advance(24 * 3600)
    assert place.approval(undecided)["status"] == "expired"
    assert not place.approve(undecided)
    why = f"Approval {undecided!r} is expired; check again without approval_id"
    assert place.check("mail.send", {"n": 1}, approval_id=undecided) == blocked(why)
    assert place.held(context={"n": 1}) != undecided


def test_an_approval_only_narrows(place: Place) -> None:
    """Named beside another context, another action or by nobody's id, it lets nothing through."""
    place.permit("mail.send", held=True)
    place.permit("math.add")
    asked = place.held(context={"n": 1})
    assert place.approve(asked)
    for action, approval_id, context in [
        ("mail.send", asked, {"n": 2}),
        ("math.add", asked, {"n": 1}),
        ("mail.send", "nobodys", {"n": 1}),
    ]:
        why = (
            f"Approval {approval_id!r} does not belong to this agent, action and context; "
            "check again without approval_id"
        )
        assert place.check(action, context, approval_id=approval_id) == blocked(why)
    assert place.check("mail.send", {"n": 1}, approval_id=asked) == ALLOWED


def test_edited(place: Place) -> None:
    """An edit replaces the request; only exactly what was approved, under its id, passes once."""
    place.permit("mail.send", held=True, max_amount=100)
    asked = place.held(context={"amount": 90, "to": "a"})
    assert not place.approve(asked, context={"amount": 101, "to": "a"})
    assert place.approve(asked, context={"amount": 50, "to": "a"})
    shown = place.approval(asked)
    assert (shown["status"], shown["approved_context"]) == ("replaced", {"amount": 50, "to": "a"})
    successor = shown["replaced_by"]
    assert place.approval(successor)["status"] == "approved"
    assert place.held(context={"amount": 50, "to": "a"}) != successor
    assert place.check("mail.send", {"amount": 50, "to": "a"}, approval_id=successor) == ALLOWED
    why = f"Approval {successor!r} is consumed; check again without approval_id"
    again = place.check("mail.send", {"amount": 50, "to": "a"}, approval_id=successor)
    assert again == blocked(why)


def test_hidden_values_cannot_be_edited(place: Place) -> None:
    """What the approver is not shown stays as it was asked."""
    place.permit("mail.send", held=True)
    hidden = {"$digest": "hmac-sha256:aa", "bytes": 3}
    asked = place.held(context={"to": "a", "body": hidden})
    assert not place.approve(asked, context={"to": "a", "body": "mine"})
    assert place.approve(asked, context={"to": "b", "body": hidden})


def test_what_is_taken_away_is_cancelled_for_good(place: Place) -> None:
    """A permission taken away or an agent switched off cancels what waits and what was approved; nothing revives it."""
    place.permit("mail.send", held=True)
    waiting, approved = place.held(context={"n": 1}), place.held(context={"n": 2})
    assert place.approve(approved)
    place.forbid("mail.send")
    assert {place.approval(one)["status"] for one in (waiting, approved)} == {"cancelled"}
    place.permit("mail.send", held=True)
    third = place.held(context={"n": 2})
    assert third != approved
    place.switch(on=False)
    place.switch(on=True)
    assert place.approval(third)["status"] == "cancelled"


def test_a_changed_permission_wins_over_an_approval(place: Place) -> None:
    """What was lowered since blocks; what no longer needs approval passes, and what waited goes on waiting."""
    place.permit("mail.send", held=True)
    asked = place.held(context={"amount": 90})
    assert place.approve(asked)
    place.permit("mail.send", held=True, max_amount=50)
    why = "Amount 90 is above the maximum of 50 for action 'mail.send'"
    assert place.check("mail.send", {"amount": 90}) == blocked(why)
    place.permit("mail.send", max_amount=100)
    assert place.check("mail.send", {"amount": 90}) == ALLOWED
    assert place.approval(asked)["status"] == "approved"


def test_calls_and_runs(place: Place) -> None:
    """A call's request answers to that call alone and lets it through once; another run is another request."""
    place.permit("mail.send", held=True)
    asked = place.held(context={"n": 1}, call_id="c1", run_id="r1")
    assert place.held(context={"n": 1}, call_id="c1", run_id="r2") != asked
    assert place.approve(asked)
    assert place.held(context={"n": 1}, call_id="c2", run_id="r1") != asked
    assert place.check("mail.send", {"n": 1}, call_id="c1", run_id="r1") == ALLOWED
    for dry in (True, False):
        again = place.asked("mail.send", {"n": 1}, call_id="c1", run_id="r1", dry_run=dry)
        assert again.body == blocked("Call 'c1' was already let through once")
        assert again.headers["x-call-let-through"] == "true"
    for other in ("mail.send", "nobody.granted"):
        assert "x-call-let-through" not in place.asked(other, {"n": 2}, call_id="c3").headers


def test_a_dry_run_changes_nothing(place: Place) -> None:
    """It is answered as the check would be, makes no request and uses no approval up."""
    place.permit("mail.send", held=True)
    dry = place.check("mail.send", {"n": 1}, dry_run=True)
    assert (dry["requires_approval"], dry["reason"], dry["approval_id"]) == (True, HELD, None)
    asked = place.held(context={"n": 1})
    assert place.approve(asked)
    assert place.check("mail.send", {"n": 1}, dry_run=True) == ALLOWED
    assert place.check("mail.send", {"n": 1}) == ALLOWED


def test_a_retry_of_a_check_costs_no_second_approval(place: Place) -> None:
    """The same attempt is answered again, with the same decision, for ten minutes."""
    place.permit("mail.send", held=True)
    attempt = {"Idempotency-Key": "k"}
    assert place.approve(place.held(context={"n": 1}))
    first = place.asked("mail.send", {"n": 1}, headers=attempt)
    again = place.asked("mail.send", {"n": 1}, headers=attempt)
    assert first.body == again.body == ALLOWED
    assert first.headers["x-decision-id"] == again.headers["x-decision-id"]
    assert place.check("mail.send", {"n": 1})["requires_approval"] is True
    place.advance(601)
    assert place.asked("mail.send", {"n": 1}, headers=attempt).body["requires_approval"] is True


def test_no_more_than_a_hundred_requests_wait(place: Place) -> None:
    """The hundred and first is blocked, and says what to do."""
    place.permit("mail.send", held=True)
    for number in range(100):
        place.held(context={"n": number})
    assert place.check("mail.send", {"n": 100}) == blocked(
        "100 requests of this agent wait for approval, and no more may (TOOLGATE_PENDING_PER_AGENT); "
        "have some of them decided or cancelled, then check again"
    )


def test_looking_waiting_and_withdrawing(place: Place) -> None:
    """A poll shows the request; a decided one is answered at once; a withdrawn one cannot be used or withdrawn again."""
    place.permit("mail.send", held=True)
    asked = place.held(context={"to": "a"}, run_id="r")
    shown = place.approval(asked)
    assert {name: shown[name] for name in ("id", "agent_id", "action", "status", "context", "run_id")} == {
        "id": asked,
        "agent_id": place.agent_id,
        "action": "mail.send",
        "status": "pending",
        "context": {"to": "a"},
        "run_id": "r",
    }
    assert set(shown) == {
        *("id", "agent_id", "action", "status", "context", "run_id", "call_id", "note"),
        *("created_at", "expires_at", "decided_at", "replaced_by", "approved_context"),
    }
    said = place.send("POST", f"/sdk/approvals/{asked}/cancel")
    assert (said.status, said.body["status"]) == (200, "cancelled")
    assert place.approval(asked, wait=60)["status"] == "cancelled"
    again = place.send("POST", f"/sdk/approvals/{asked}/cancel")
    assert (again.status, again.body) == (409, {"detail": "Approval is no longer open: it is cancelled"})
    assert not place.approve(asked)
    unknown = place.send("GET", "/sdk/approvals/0199a3f2-ffff-7000-8000-00000000000a")
    assert (unknown.status, unknown.body) == (404, {"detail": "Approval not found"})


@pytest.mark.parametrize("key", ["ak_" + "x" * 37, ""])
@pytest.mark.parametrize(
    "path", ["POST /sdk/check", "POST /sdk/log", "POST /sdk/logs", "GET /sdk/approvals/x"]
)
def test_a_wrong_key(place: Place, key: str, path: str) -> None:
    """It is refused everywhere, and so is none."""
    method, _, target = path.partition(" ")
    said = place.send(method, target, {} if method == "POST" else None, {"X-API-Key": key})
    assert (said.status, said.body) == (401, {"detail": "Invalid API key" if key else "Missing API key"})


@pytest.mark.parametrize("status", ["success", "failed", "pending", "denied"])
def test_logs(place: Place, status: str) -> None:
    """Every status is taken, and the entry told as it was sent."""
    context = {"a": 1, "text": "ä"}
    said = place.log("any.action", status, context=context, run_id="r", ip_address="192.0.2.1")
    assert said.status == 200
    told = {name: said.body[name] for name in ("agent_id", "action", "status", "context")}
    assert told == {
        "agent_id": place.agent_id,
        "action": "any.action",
        "status": status,
        "context": context,
    }
    assert set(said.body) == {*told, "id", "organization_id", "created_at"}
    assert place.log("any.action").body["context"] is None


def test_log_entries_are_taken_once(place: Place) -> None:
    """The same key is answered as before for a day, also when the body differs, and the answer says so."""
    first = place.log("a.b", key="k", context={"n": 1})
    again = place.log("a.b", key="k", context={"n": 1})
    assert first.body == again.body
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-mismatch" not in again.headers
    other = place.log("a.c", key="k")
    assert (other.body, other.headers["idempotency-mismatch"]) == (first.body, "true")
    place.advance(24 * 3600 + 1)
    assert place.log("a.b", key="k").body["id"] != first.body["id"]


def test_log_entries_of_an_agent_nobody_knows(place: Place) -> None:
    """They are not taken; those of an inactive one are."""
    said = place.log("a.b", agent_id="0199a3f2-ffff-7000-8000-00000000000a")
    assert (said.status, said.body) == (404, {"detail": "Agent not found"})
    place.switch(on=False)
    assert place.log("a.b").status == 200


def test_many_log_entries_at_once(place: Place) -> None:
    """Each is answered for itself, in order, and once."""
    good = {"agent_id": place.agent_id, "action": "a.b", "status": "success", "idempotency_key": "k"}
    bad = {**good, "status": "odd", "idempotency_key": "other"}
    said = place.send("POST", "/sdk/logs", {"entries": [good, bad, good, 3]})
    results = said.body["results"]
    assert [one["status"] for one in results] == [200, 400, 200, 400]
    assert results[0]["entry"] == results[2]["entry"]
    assert results[2]["replayed"] is True
    assert "detail" in results[1]
    assert results[3] == {"status": 400, "detail": {"entry": ["must be an object"]}}
    for body, complaint in [
        ({}, "This field is required"),
        ({"entries": 1}, "must be a list"),
        ({"entries": [good] * 101}, "must hold at most 100 entries, not 101"),
    ]:
        refused = place.send("POST", "/sdk/logs", body)
        assert (refused.status, refused.body) == (400, {"detail": {"entries": [complaint]}})


DEEP: Any = []
for _ in range(40):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/sdk/check", {"agent_id": None}),
        ("/sdk/check", {"agent_id": 3}),
        ("/sdk/check", {"action": ""}),
        ("/sdk/check", {"action": "with space"}),
        ("/sdk/check", {"action": "x" * 256}),
        ("/sdk/check", {"context": []}),
        ("/sdk/check", {"context": {"deep": DEEP}}),
        ("/sdk/check", {"context": {"large": "x" * 70_000}}),
        ("/sdk/check", {"approval_id": ""}),
        ("/sdk/check", {"run_id": "x" * 256}),
        ("/sdk/check", {"reason": "x" * 1001}),
        ("/sdk/check", {"reason": 7}),
        ("/sdk/check", {"reason": "a\x1bb"}),
        ("/sdk/check", {"dry_run": "yes"}),
        ("/sdk/log", {"status": None}),
        ("/sdk/log", {"status": "odd", "action": 1}),
        ("/sdk/log", {"ip_address": "nowhere"}),
        ("/sdk/log", {"occurred_at": "yesterday"}),
        ("/sdk/log", {"approval_id": 1}),
    ],
)
def test_bad_bodies(make_real: Make, path: str, fields: dict[str, Any]) -> None:
    """Both name the same fields in the same words."""
    answers = []
    for place in (FakePlace(), make_real()):
        body = {"agent_id": place.agent_id, "action": "a.b", "status": "success", **fields}
        answers.append(place.send("POST", path, body))
    fake, real = answers
    assert fake.status == real.status == 400
    assert fake.body == real.body


def test_what_an_agent_may_do(place: Place) -> None:
    """The list of its permissions is the same, and empty while it is inactive."""
    place.permit("math.add")
    place.permit("pay", held=True, max_amount=12.5, amount_required=True)
    said = place.send("GET", f"/sdk/permissions?agent_id={place.agent_id}")
    names = ("agent_id", "action", "requires_approval", "max_amount", "amount_required")
    assert [{name: one[name] for name in names} for one in said.body] == [
        dict(zip(names, (place.agent_id, "pay", True, 12.5, True), strict=True)),
        dict(zip(names, (place.agent_id, "math.add", False, None, False), strict=True)),
    ]
    place.switch(on=False)
    assert place.send("GET", f"/sdk/permissions?agent_id={place.agent_id}").body == []
    unknown = place.send("GET", "/sdk/permissions?agent_id=0199a3f2-ffff-7000-8000-00000000000a")
    assert (unknown.status, unknown.body) == (404, {"detail": "Agent not found"})
