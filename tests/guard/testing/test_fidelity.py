"""The fake gateway decides as the gateway does: every test runs against both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from support.freezes import freeze, unfreeze
from support.rules import add_budget, delete_budgets, without_window
from support.waiting import until

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalPending,
    ConfigurationError,
    Guard,
    GuardError,
)
from toolgate._options import Actions
from toolgate.embedded import EmbeddedGateway
from toolgate.testing import FakeGateway

pytestmark = pytest.mark.sqlite_only("the embedded gateway is on SQLite alone")

ALLOW: Actions = {"math.add": None, "pay": {"max_amount": 100}}
REQUIRE_APPROVAL: Actions = {"mail.send": None, "file.delete": None, "transfer": {"max_amount": 50}}


@dataclass(frozen=True)
class Scene:
    """A guard, and the approver of its gateway."""

    guard: Guard
    gateway: FakeGateway | EmbeddedGateway


@pytest.fixture(scope="module")
def embedded() -> Iterator[Scene]:
    with Guard.embedded(":memory:", agent="bot", allow=ALLOW, require_approval=REQUIRE_APPROVAL) as guard:
        yield Scene(guard, guard.gateway)


@pytest.fixture(params=["fake", "embedded"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """Both gateways. The tests share the embedded one, and use contexts of their own."""
    if request.param == "embedded":
        found: Scene = request.getfixturevalue("embedded")
        return found
    gateway = FakeGateway(ALLOW, REQUIRE_APPROVAL)
    return Scene(gateway.guard(), gateway)


def test_actions_are_allowed_or_denied_with_the_same_reasons(scene: Scene) -> None:
    ran: list[object] = []

    @scene.guard.guarded("math.add")
    def add(a: int, b: int) -> int:
        ran.append((a, b))
        return a + b

    @scene.guard.guarded("pay", amount="cents")
    def pay(cents: object) -> None:
        ran.append(cents)

    @scene.guard.guarded("rm")
    def remove() -> None:
        ran.append("rm")

    assert add(1, 2) == 3
    pay(100)
    reasons = []
    for call in (lambda: pay(101), lambda: pay("9"), remove):
        with pytest.raises(ActionDenied) as denied:
            call()
        reasons.append(denied.value.reason)
    assert ran == [(1, 2), 100]
    assert reasons == [
        "Amount 101 is above the maximum of 100 for action 'pay'",
        "context.amount must be a non-negative number, not '9', because of the maximum of 100 for action 'pay'",
        "Agent has no permission for action 'rm'",
    ]
    assert scene.guard.check("pay").reason == (
        "context.amount is required because of the maximum of 100 for action 'pay'"
    )


async def test_approval_allows_the_same_call_once(scene: Scene) -> None:

    @scene.guard.guarded("mail.send")
    async def send(to: str) -> str:
        return f"sent to {to}"

    with pytest.raises(ApprovalPending) as pending:
        await send("once")
    asked = [one for one in scene.gateway.pending() if one.approval_id == pending.value.approval_id]
    assert [(one.action, one.context) for one in asked] == [("mail.send", {"to": "once"})]
    scene.gateway.approve(pending.value.approval_id, note="fine")
    assert await send("once") == "sent to once"
    with pytest.raises(ApprovalPending) as again:
        await send("once")
    assert again.value.approval_id != pending.value.approval_id


def test_note_of_the_approver_is_the_reason(scene: Scene) -> None:

    @scene.guard.guarded("mail.send")
    def send(to: str) -> None: ...

    with pytest.raises(ApprovalPending) as pending:
        send("no")
    scene.gateway.deny(pending.value.approval_id, note="not today")
    with pytest.raises(ActionDenied, match="Denied by a person: not today"):
        send("no")


def test_thread_waits_for_the_decision(scene: Scene) -> None:

    @scene.guard.guarded("mail.send", on_hold="wait", hold_timeout=600)
    def send(to: str) -> str:
        return f"sent to {to}"

    for to, decide in (("yes", scene.gateway.approve), ("no", scene.gateway.deny)):
        ended: list[object] = []

        def call(to: str = f"thread-{to}", ended: list[object] = ended) -> None:
            try:
                ended.append(send(to))
            except GuardError as error:
                ended.append(type(error))

        thread = threading.Thread(target=call)
        thread.start()
        until(lambda to=to: request_ids(scene, f"thread-{to}"))
        decide(request_ids(scene, f"thread-{to}")[0])
        thread.join(60)
        assert ended == ["sent to thread-yes" if to == "yes" else ApprovalDenied]


async def test_tasks_wait_for_the_decision(scene: Scene) -> None:

    @scene.guard.guarded("mail.send", on_hold="wait")
    async def send(to: str, text: str) -> str:
        return f"{text} to {to}"

    edited, dropped = (asyncio.create_task(send(to, "hello")) for to in ("edited", "dropped"))
    await asyncio.to_thread(until, lambda: request_ids(scene, "edited") and request_ids(scene, "dropped"))
    [approval_id] = request_ids(scene, "edited")
    await asyncio.to_thread(
        lambda: scene.gateway.approve(approval_id, context={"to": "edited", "text": "good day"})
    )
    assert await edited == "good day to edited"
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    assert request_ids(scene, "dropped") == []


def test_approved_call_is_resumed(scene: Scene) -> None:

    @scene.guard.guarded("file.delete")
    def delete(path: str) -> str:
        return path

    with pytest.raises(ApprovalPending) as pending:
        delete("a.txt")
    scene.gateway.approve(pending.value.approval_id)
    with scene.guard.resume(pending.value.approval_id):
        assert delete("a.txt") == "a.txt"
    with pytest.raises(ConfigurationError, match="has no approval request"), scene.guard.resume("nobodys"):
        delete("a.txt")


async def test_log_entry_is_returned_as_sent_and_idempotent(scene: Scene) -> None:
    first = scene.guard.log("any.thing", "failed", {"n": 1}, idempotency_key="k")
    again = await scene.guard.alog("any.thing", "failed", {"n": 1}, idempotency_key="k")
    assert first == again
    assert (first["action"], first["status"], first["context"]) == ("any.thing", "failed", {"n": 1})
    assert scene.guard.flush() is await scene.guard.aflush() is True


def test_invalid_decision_is_refused(scene: Scene) -> None:
    unknown = "0199a3f2-ffff-7000-8000-00000000000a"
    for decide in (scene.gateway.approve, scene.gateway.deny):
        with pytest.raises(ConfigurationError, match="Approval not found"):
            decide(unknown)
    approval_id = requested(scene, "file.delete", path="b.txt")
    scene.gateway.deny(approval_id)
    with pytest.raises(ConfigurationError, match="no longer pending: it is denied"):
        scene.gateway.approve(approval_id)


async def test_blocks_are_guarded(scene: Scene) -> None:
    with scene.guard.action("math.add", {"a": 1}) as act:
        act.context["sum"] = 2
    async with scene.guard.action("math.add", {"a": 2}):
        pass
    with pytest.raises(ActionDenied), scene.guard.action("rm"):
        raise AssertionError("ran")


def request_ids(scene: Scene, to: str) -> list[str]:
    return [one.approval_id for one in scene.gateway.pending() if one.context.get("to") == to]


def requested(scene: Scene, action: str, **context: object) -> str:
    """Check an action that requires approval, and return the id of the approval request."""
    decision = scene.guard.check(action, context)
    assert decision.held
    assert decision.reason == f"Action '{action}' needs human approval"
    return str(decision.approval_id)


LIMIT = "the maximum of 100 for action 'pay'"


@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        (100, None),
        (0, None),
        (Decimal("99.99"), None),
        (100.01, f"Amount 100.01 is above {LIMIT}"),
        (1e3, f"Amount 1000 is above {LIMIT}"),
        (-1, f"context.amount must be a non-negative number, not -1, because of {LIMIT}"),
        (None, f"context.amount must be a non-negative number, not null, because of {LIMIT}"),
        (True, f"context.amount must be a non-negative number, not true, because of {LIMIT}"),
        ("x" * 99, f"context.amount must be a non-negative number, not {'x' * 40!r}, because of {LIMIT}"),
    ],
)
def test_amounts_are_compared_exactly(scene: Scene, amount: Any, reason: str | None) -> None:
    decision = scene.guard.check("pay", {"amount": amount})
    assert (decision.allowed, decision.reason) == (reason is None, reason)


def test_equal_contexts_share_a_request(scene: Scene) -> None:
    first = requested(scene, "mail.send", to="shared", n=1)
    assert scene.guard.check("mail.send", {"n": 1.0, "to": "shared"}).approval_id == first
    assert requested(scene, "mail.send", to="shared", n=2) != first
    assert requested(scene, "mail.send", to="shared", n=True) != first


def test_rejection_is_remembered_for_equal_calls(scene: Scene) -> None:
    context = {"to": "remembered"}
    approval_id = requested(scene, "mail.send", **context)
    scene.gateway.deny(approval_id)
    for call_id in (None, "call-1"):
        decision = scene.guard.check("mail.send", context, call_id=call_id)
        assert (decision.blocked, decision.reason) == (True, "Denied by a person")
    assert scene.guard.check("mail.send", {"to": "remembered?"}).held


def test_approval_covers_no_other_call(scene: Scene) -> None:
    approval_id = requested(scene, "mail.send", to="covered")
    scene.gateway.approve(approval_id)
    other = scene.guard.check("mail.send", {"to": "not covered"}, approval_id=approval_id)
    ending = "does not belong to this agent, action and context; check again without approval_id"
    assert (other.blocked, other.reason) == (True, f"Approval {approval_id!r} {ending}")
    send = scene.guard.guarded("mail.send")(lambda to: to)
    with pytest.raises(ActionDenied, match="different value of 'to'"), scene.guard.resume(approval_id):
        send("not covered")
    with scene.guard.resume(approval_id):
        assert send("covered") == "covered"
    assert scene.guard.approval(approval_id).status == "consumed"
    again = scene.guard.check("mail.send", {"to": "covered"}, approval_id=approval_id)
    assert again.reason == f"Approval {approval_id!r} is consumed; check again without approval_id"


def test_call_with_an_id_runs_once(scene: Scene) -> None:
    context = {"to": "once by id"}
    approval_id = scene.guard.check("mail.send", context, call_id="once").approval_id
    assert approval_id is not None
    scene.gateway.approve(approval_id)
    assert scene.guard.check("mail.send", context, call_id="other").held
    assert scene.guard.check("mail.send", context, call_id="once", dry_run=True).allowed
    assert scene.guard.check("mail.send", context, call_id="once").allowed
    again = scene.guard.check("mail.send", context, call_id="once")
    assert (again.blocked, again.reason) == (
        True,
        "Call 'once' has already been allowed once; use a new call_id for a new call",
    )


def test_cancelled_request_is_requested_again(scene: Scene) -> None:
    approval_id = requested(scene, "mail.send", to="cancelled")
    assert scene.guard.cancel(approval_id).status == "cancelled"
    with pytest.raises(ConfigurationError, match="no longer pending: it is cancelled"):
        scene.gateway.approve(approval_id)
    assert requested(scene, "mail.send", to="cancelled") != approval_id


def test_call_rejected_in_its_framework_stays_denied(scene: Scene) -> None:
    context = {"to": "rejected in the framework"}
    approval_id = scene.guard.check("mail.send", context, call_id="rejected").approval_id
    assert approval_id is not None
    scene.guard.cancel(approval_id, rejected=True)
    again = scene.guard.check("mail.send", context, call_id="rejected")
    assert again.reason == "Call 'rejected' was rejected in the agent's framework"
    assert scene.guard.check("mail.send", context, call_id="not rejected").held


def test_dry_run_changes_nothing(scene: Scene) -> None:
    dry = scene.guard.check("mail.send", {"to": "dry"}, dry_run=True)
    assert (dry.held, dry.approval_id) == (True, None)
    assert request_ids(scene, "dry") == []


def test_edited_approval_covers_only_the_edited_call(scene: Scene) -> None:
    approval_id = requested(scene, "mail.send", to="edited", n=1)
    scene.gateway.approve(approval_id, context={"to": "edited", "n": 2}, note="fewer")
    original, edited = scene.guard.approval(approval_id), scene.guard.approval(approval_id, newest=True)
    assert (original.status, original.replaced_by) == ("replaced", edited.approval_id)
    assert (edited.status, edited.note, edited.context) == ("approved", "fewer", {"to": "edited", "n": 2})
    # Without the id of the approval, the edited call requires an approval of its own.
    assert scene.guard.check("mail.send", {"to": "edited", "n": 2}).held
    send = scene.guard.guarded("mail.send")(lambda to, n: (to, n))
    with scene.guard.resume(approval_id):
        assert send("edited", 1) == ("edited", 2)


def test_edit_above_the_maximum_is_refused(scene: Scene) -> None:
    approval_id = requested(scene, "transfer", amount=40)
    with pytest.raises(
        ConfigurationError, match="Amount 51 is above the maximum of 50 for action 'transfer'"
    ):
        scene.gateway.approve(approval_id, context={"amount": 51})
    assert scene.guard.approval(approval_id).status == "pending"


@pytest.mark.parametrize("pattern", ["math.add", "math.*", "mat*", None], ids=str)
def test_frozen_call_is_denied_with_the_same_reason_until_the_freeze_is_lifted(
    scene: Scene, pattern: str | None
) -> None:
    ran: list[int] = []

    @scene.guard.guarded("math.add")
    def add(n: int) -> None:
        ran.append(n)

    freeze(scene.gateway, pattern, reason=" Refunds were paid twice ")
    try:
        with pytest.raises(ActionDenied) as denied:
            add(1)
        error, decision = denied.value, scene.guard.check("mail.send", {"to": "frozen"}, dry_run=True)
    finally:
        unfreeze(scene.gateway)
    assert (error.reason, error.reason_code) == ("Calls are frozen: Refunds were paid twice", "frozen")
    assert (decision.reason_code == "frozen") is (pattern is None)
    add(2)
    assert ran == [2]


def test_freeze_leaves_an_approval_to_be_used_afterwards(scene: Scene) -> None:
    approval_id = requested(scene, "mail.send", to="frozen and approved")
    scene.gateway.approve(approval_id)
    freeze(scene.gateway, reason="Twice")
    try:
        assert scene.guard.check("mail.send", {"to": "frozen and approved"}).reason_code == "frozen"
    finally:
        unfreeze(scene.gateway)
    assert scene.guard.check("mail.send", {"to": "frozen and approved"}).reason_code == "approved"


@pytest.fixture
def budgets(scene: Scene) -> Iterator[Scene]:
    """Both gateways; their budgets are deleted after the test."""
    yield scene
    delete_budgets(scene.gateway)


@pytest.mark.parametrize(
    ("amount", "described"),
    [
        (-1, "-1"),
        (None, "null"),
        (True, "true"),
        ("9" * 99, repr("9" * 40)),
        ([1], "a list"),
        ({"a": 1}, "an object"),
    ],
    ids=str,
)
def test_budget_denies_a_call_without_a_valid_amount(budgets: Scene, amount: Any, described: str) -> None:
    add_budget(budgets.gateway, 5, "math.*", measure="sum(args.euros)", name="Sums")
    missing, invalid = budgets.guard.check("math.add"), budgets.guard.check("math.add", {"euros": amount})
    assert [missing.reason_code, invalid.reason_code] == ["budget_amount_invalid"] * 2
    assert missing.reason == "context.euros is required, because of budget 'Sums'"
    assert invalid.reason == (
        f"context.euros must be a non-negative number, not {described}, because of budget 'Sums'"
    )


def test_log_entries_settle_and_release_the_amounts_of_guarded_calls(budgets: Scene) -> None:
    add_budget(budgets.gateway, 1, "math.add", measure="sum(args.n)", name="Sums")

    @budgets.guard.guarded("math.add")
    def add(n: object, *, fails: bool = False) -> None:
        if fails:
            raise ConnectionResetError

    def left() -> Decimal | None:
        assert budgets.guard.flush()
        return budgets.guard.check("math.add", {"n": 0}, dry_run=True).budget_left

    add(Decimal("0.1"))
    add(Decimal("0.20000000000000000000000000000000000000001"))
    assert left() == Decimal("0.69999999999999999999999999999999999999999")
    with pytest.raises(ConnectionResetError):
        add(Decimal("0.5"), fails=True)
    assert left() == Decimal("0.69999999999999999999999999999999999999999")
    paid = budgets.guard.check("math.add", {"n": 0})
    budgets.guard.log("math.add", "success", {"n": 0.5}, decision_id=paid.decision_id)
    assert left() == Decimal("0.19999999999999999999999999999999999999999")
    paid = budgets.guard.check("math.add", {"n": 0})
    budgets.guard.log("math.add", "success", {"n": 2}, decision_id=paid.decision_id)
    with pytest.raises(ActionDenied) as denied:
        add(1e1)
    assert denied.value.reason_code == "budget_exceeded"
    assert without_window(denied.value.reason) == (
        "Budget 'Sums' does not cover the amount 10: 0 of 1 is left in this window"
    )


def test_call_over_the_limit_runs_once_after_an_approval(budgets: Scene) -> None:
    add_budget(budgets.gateway, 1, "math.add", at_limit="require_approval", name="Calls")
    context = {"over": "the limit"}
    assert budgets.guard.check("math.add", context).budget_left == 0
    over = budgets.guard.check("math.add", context)
    assert without_window(over.reason) == (
        "Budget 'Calls' does not cover another call: 0 of 1 is left in this window"
    )
    assert (over.held, over.reason_code) == (True, "approval_required")
    budgets.gateway.approve(over.approval_id)
    approved = budgets.guard.check("math.add", context)
    assert (approved.reason_code, approved.budget_left) == ("approved", -1)
    assert budgets.guard.check("math.add", context).held


def test_approved_call_is_denied_while_a_budget_does_not_cover_it(budgets: Scene) -> None:
    approval_id = requested(budgets, "mail.send", to="a budget")
    budgets.gateway.approve(approval_id)
    add_budget(budgets.gateway, 0, "mail.send", name="Mails")
    assert budgets.guard.check("mail.send", {"to": "a budget"}).reason_code == "budget_exceeded"
    delete_budgets(budgets.gateway)
    assert budgets.guard.check("mail.send", {"to": "a budget"}).reason_code == "approved"
