"""Calls that wait for an approver: when they poll, and what an interruption leaves. No gateway, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.flows import WHO, FlowRun

from toolgate import ApprovalPending, Decision, GatewayProtocolError, GatewayUnavailable
from toolgate._approval_flow import PollSchedule
from toolgate._effects import CancelApproval, Cleanup, GetApproval, SendCheck, Sleep
from toolgate._models import Approval, Check
from toolgate._process_state import PendingApproval, PendingApprovals

HELD = Decision(allowed=False, requires_approval=True, reason="ask", approval_id="appr-1")
REPLACED = Approval("replaced", replaced_by="appr-2")
PENDING = Approval("pending")
DOWN = GatewayUnavailable("down")


def check(context: dict[str, Any], approval_id: str) -> SendCheck:
    return SendCheck(Check("a.b", WHO, context, approval_id))


def waiting() -> FlowRun:
    """A flow that polls its approval request."""
    run = FlowRun(on_hold="wait")
    assert run.reply(HELD) == GetApproval("appr-1", 30, polls=True)
    return run


def cancelled(cleanup: object) -> str:
    """Return the id of the request that a cleanup withdraws."""
    assert isinstance(cleanup, Cleanup)
    effect = next(cleanup.make_flow())
    assert isinstance(effect, CancelApproval)
    return effect.approval_id


def test_interrupted_wait_withdraws_the_request() -> None:
    assert cancelled(waiting().interrupt()) == "appr-1"


def test_interrupted_wait_for_an_edit_withdraws_the_edit() -> None:
    run = waiting()
    run.reply(REPLACED)
    assert cancelled(run.interrupt()) == "appr-2"


def test_keyboard_interrupt_between_two_effects_withdraws_the_request() -> None:
    run = waiting()
    assert cancelled(run.fail(KeyboardInterrupt())) == "appr-1"
    with pytest.raises(KeyboardInterrupt):
        run.reply(None)


def test_interrupted_wait_leaves_a_request_that_an_equal_call_waits_for() -> None:
    run = waiting()
    pending = PendingApprovals()
    run.call.pending = PendingApproval(pending)
    run.call.pending.begin("appr-1")
    other = PendingApproval(pending)
    other.begin("appr-1")
    assert run.interrupt() is None
    assert other.end()


def test_error_while_waiting_leaves_the_request() -> None:
    run = waiting()
    with pytest.raises(ZeroDivisionError):
        run.fail(ZeroDivisionError())
    assert run.call.pending.waits_for is None


def test_interrupted_read_of_a_call_that_does_not_wait_leaves_the_request() -> None:
    assert FlowRun(resumes="appr-9").interrupt() is None


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (DOWN, "cancel_failed"),
        (GatewayProtocolError("gone", status=409), "cancelled"),
        (GatewayProtocolError("odd", status=500), "cancel_failed"),
    ],
)
def test_failed_withdrawal_is_logged(error: Exception, event: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="toolgate")
    cleanup = waiting().interrupt()
    assert isinstance(cleanup, Cleanup)
    flow = cleanup.make_flow()
    next(flow)
    with pytest.raises(StopIteration):
        flow.throw(error)
    assert caplog.records[-1].__dict__["toolgate_event"] == event


class World:
    """A gateway with scripted replies and a clock; a long poll takes its whole time, a failure 5 s."""

    def __init__(self, *replies: Any, poll: float | None = None) -> None:
        self.now = 0.0
        self.replies = list(replies)
        self.waits: list[int] = []
        self.pauses: list[float] = []
        self._poll = poll

    def clock(self) -> float:
        return self.now

    def run(self, hold_timeout: float | None) -> FlowRun:
        """Answer a waiting call until it is checked again or raises."""
        run = FlowRun(on_hold="wait", hold_timeout=hold_timeout, clock=self.clock)
        run.reply(HELD)
        return self.poll(run)

    def poll(self, run: FlowRun) -> FlowRun:
        while isinstance(run.effect, GetApproval | Sleep):
            if isinstance(run.effect, Sleep):
                self.pauses.append(run.effect.seconds)
                self.now += run.effect.seconds
                run.reply(None)
                continue
            self.waits.append(run.effect.wait)
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            if isinstance(reply, Exception):
                self.now += 5
                run.fail(reply)
            else:
                self.now += run.effect.wait if self._poll is None else self._poll
                run.reply(reply)
        return run


def test_long_polls_follow_each_other_until_the_decision() -> None:
    world = World(PENDING, PENDING, Approval("approved"))
    assert world.run(None).effect == check({"n": 1}, "appr-1")
    assert world.waits == [30, 30, 30]


def test_hold_timeout_ends_the_wait_with_a_last_poll() -> None:
    world = World(PENDING)
    with pytest.raises(ApprovalPending):
        world.run(65)
    assert world.waits == [30, 30, 5, 0]
    assert world.now == 65


def test_decision_in_the_last_moment_is_seen() -> None:
    world = World(PENDING, Approval("approved"))
    assert world.run(0.5).effect == check({"n": 1}, "appr-1")
    assert world.waits == [0, 0]


def test_pending_edit_is_raised_with_the_first_id() -> None:
    """With it a later call can follow all edits."""
    with pytest.raises(ApprovalPending) as raised:
        World(REPLACED, PENDING).run(40)
    assert raised.value.approval_id == "appr-1"


def test_hold_timeout_is_for_the_whole_call() -> None:
    world = World(Approval("approved"), PENDING)
    # The approval comes with the first poll, which takes 30 s.
    run = world.run(40)
    run.reply(replace(HELD, approval_id="appr-2"))
    with pytest.raises(ApprovalPending):
        world.poll(run)
    assert world.now == 40


def test_gateway_that_holds_no_long_poll_is_polled_once_a_second() -> None:
    world = World(PENDING, poll=0.0)
    with pytest.raises(ApprovalPending):
        world.run(5)
    assert len(world.waits) == 6
    assert world.pauses[0] == 1.0


def test_outage_within_hold_timeout_does_not_end_the_wait() -> None:
    assert World(DOWN, DOWN, Approval("approved")).run(60).effect == check({"n": 1}, "appr-1")


def test_outage_until_hold_timeout_leaves_the_call_pending() -> None:
    with pytest.raises(ApprovalPending):
        World(DOWN).run(600)


def test_unlimited_wait_ends_after_an_outage_of_five_minutes() -> None:
    world = World(*[DOWN] * 59, PENDING, *[DOWN] * 59, Approval("approved"))
    assert world.run(None).effect == check({"n": 1}, "appr-1")
    endless = World(DOWN)
    with pytest.raises(GatewayUnavailable):
        endless.run(None)
    assert endless.now == 300


def test_resumed_call_that_waits_outlasts_an_outage() -> None:
    world = World(DOWN, DOWN, Approval("approved"))
    run = FlowRun(on_hold="wait", resumes="appr-9", clock=world.clock)
    assert world.poll(run).effect == check({"n": 1}, "appr-9")


def test_poll_waits_whole_seconds() -> None:
    schedule = PollSchedule(0.5, World(PENDING).clock)
    assert schedule.next_poll() == 0
    assert schedule.pause() == 0.5
