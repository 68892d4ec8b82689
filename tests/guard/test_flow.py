"""Every path of the flow, driven by hand: no gateway, no clock, no tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from toolgate.steps import Approval, AwaitApproval, Check, Intend, Raised, Recapture, Record, Returned, Run

from toolgate import ActionDenied, ApprovalDenied, ApprovalExpired, ApprovalPending, Decision
from toolgate._call import Call, OnHold
from toolgate._capture.context import Captured
from toolgate._effects import Flow
from toolgate._flow import guarded_call
from toolgate._identity import Identity
from toolgate._outbox.entries import Intent

WHO = Identity("agent-1", "run-1")
ALLOWED = Decision(allowed=True, requires_approval=False, decision_id="d-1")
BLOCKED = Decision(allowed=False, requires_approval=False, reason="no permission", decision_id="d-2")
HELD = Decision(allowed=False, requires_approval=True, reason="ask", approval_id="appr-1", decision_id="d-3")


def start(on_hold: OnHold = "raise", context: dict[str, Any] | None = None) -> Flow:
    captured = Captured({"n": 1} if context is None else context, hidden=("hunter22",))
    return guarded_call(Call("a.b", WHO, captured, on_hold))


def ended(flow: Flow, answer: object) -> None:
    with pytest.raises(StopIteration):
        flow.send(answer)


def waiting() -> Flow:
    """A flow that has been held and asks what became of its approval."""
    flow = start("wait")
    next(flow)
    assert isinstance(flow.send(HELD), Record)
    assert flow.send(None) == AwaitApproval("a.b", WHO, "appr-1")
    return flow


def test_allowed_and_returned() -> None:
    """An allowed call runs and is recorded as success with its duration."""
    flow = start()
    assert next(flow) == Check("a.b", WHO, {"n": 1})
    unknown = Record("a.b", WHO, "pending", {"n": 1, "outcome": "unknown"}, None, "d-1")
    assert flow.send(ALLOWED) == Intend(unknown)
    intent = Intent(7, "key", 1)
    assert flow.send(intent) == Run()
    record = flow.send(Returned(1.5, {"rows": 3}))
    context = {"n": 1, "rows": 3, "duration_ms": 1.5}
    assert record == Record("a.b", WHO, "success", context, None, "d-1", intent=intent)
    ended(flow, None)


@pytest.mark.parametrize(
    "error", [ValueError("saw hunter22"), StopIteration("saw hunter22"), GeneratorExit("x")]
)
def test_allowed_and_raised(error: BaseException) -> None:
    """Whatever a tool raises is recorded as failed, without hidden values, and does not end the flow early."""
    flow = start()
    next(flow)
    flow.send(ALLOWED)
    flow.send(None)
    record = flow.send(Raised(error, 2.0))
    assert isinstance(record, Record)
    assert record.status == "failed"
    assert record.context["error"] == {
        "type": type(error).__name__,
        "message": str(error).replace("hunter22", "[redacted]"),
    }
    assert record.context["duration_ms"] == 2.0
    ended(flow, None)


def test_facts_never_overwrite_arguments() -> None:
    """Arguments that have a fact's name keep it; the fact gets a trailing underscore."""
    flow = start(context={"error": "mine", "duration_ms": 7, "duration_ms_": 8})
    next(flow)
    flow.send(ALLOWED)
    flow.send(None)
    record = flow.send(Raised(ValueError("x"), 2.0))
    assert isinstance(record, Record)
    assert record.context == {
        "error": "mine",
        "duration_ms": 7,
        "duration_ms_": 8,
        "error_": {"type": "ValueError", "message": "x"},
        "duration_ms__": 2.0,
    }


def test_blocked() -> None:
    """A blocked call is recorded as denied, raises ActionDenied and never runs."""
    flow = start()
    next(flow)
    assert flow.send(BLOCKED) == Record(
        "a.b", WHO, "denied", {"n": 1, "reason": "no permission"}, None, "d-2", "no permission"
    )
    with pytest.raises(ActionDenied) as raised:
        flow.send(None)
    assert (raised.value.reason, raised.value.action, raised.value.agent_id) == (
        "no permission",
        "a.b",
        "agent-1",
    )
    assert raised.value.decision_id == "d-2"


def test_held_raises() -> None:
    """A held call is recorded as pending with its approval and raises ApprovalPending."""
    flow = start()
    next(flow)
    assert flow.send(HELD) == Record("a.b", WHO, "pending", {"n": 1, "reason": "ask"}, "appr-1", "d-3", "ask")
    with pytest.raises(ApprovalPending) as raised:
        flow.send(None)
    assert raised.value.approval_id == "appr-1"
    assert raised.value.reason == "ask"


def test_approved_and_unchanged() -> None:
    """After approval the equal call is checked with the approval's id, runs, and is recorded with it."""
    flow = waiting()
    assert flow.send(Approval("approved")) == Recapture()
    assert flow.send(Captured({"n": 1})) == Check("a.b", WHO, {"n": 1}, "appr-1")
    assert isinstance(flow.send(ALLOWED), Intend)
    assert flow.send(None) == Run()
    record = flow.send(Returned(1.0))
    assert isinstance(record, Record)
    assert (record.status, record.approval_id) == ("success", "appr-1")


@pytest.mark.parametrize("changed", [{"n": 2}, {"n": True}, {"n": 1, "m": None}])
def test_approved_and_changed(changed: dict[str, Any]) -> None:
    """Arguments that changed while waiting are a new request: the old approval does not cover them."""
    flow = waiting()
    flow.send(Approval("approved"))
    assert flow.send(Captured(changed)) == Check("a.b", WHO, changed, None)
    assert isinstance(flow.send(HELD), Record)


def test_approved_and_switched_off() -> None:
    """An approval does not outlive the permission: the deciding check may still block."""
    flow = waiting()
    flow.send(Approval("approved"))
    flow.send(Captured({"n": 1}))
    # Asked once more without the approval: perhaps only that was gone.
    assert flow.send(BLOCKED) == Check("a.b", WHO, {"n": 1})
    record = flow.send(BLOCKED)
    assert isinstance(record, Record)
    assert record.status == "denied"
    with pytest.raises(ActionDenied):
        flow.send(None)


@pytest.mark.parametrize("seen", ["approved", "consumed"])
def test_used_up_by_an_equal_call(seen: Any) -> None:
    """Of two equal calls that wait, the one that comes too late is held anew and waits for its own approval."""
    flow = waiting()
    assert flow.send(Approval(seen)) == Recapture()
    assert flow.send(Captured({"n": 1})) == Check("a.b", WHO, {"n": 1}, "appr-1")
    assert flow.send(BLOCKED) == Check("a.b", WHO, {"n": 1})
    assert isinstance(flow.send(replace(HELD, approval_id="appr-2")), Record)
    assert flow.send(None) == AwaitApproval("a.b", WHO, "appr-2")


def test_declined() -> None:
    """A person's no is recorded as denied and raises ApprovalDenied with their note."""
    flow = waiting()
    record = flow.send(Approval("denied", "too much"))
    assert isinstance(record, Record)
    assert (record.status, record.context["reason"]) == ("denied", "too much")
    with pytest.raises(ApprovalDenied, match="too much") as raised:
        flow.send(None)
    assert raised.value.approval_id == "appr-1"


def test_expired() -> None:
    """An expiry is recorded as such and raises ApprovalExpired, which is no denial."""
    flow = waiting()
    record = flow.send(Approval("expired"))
    assert isinstance(record, Record)
    assert "expired" in str(record.context["reason"])
    with pytest.raises(ApprovalExpired) as raised:
        flow.send(None)
    assert not isinstance(raised.value, ActionDenied)


@pytest.mark.parametrize("status", ["cancelled", "replaced"])
def test_withdrawn(status: Any) -> None:
    """An approval that is gone in another way blocks the call, and says in which."""
    flow = waiting()
    flow.send(Approval(status))
    with pytest.raises(ActionDenied, match=status) as raised:
        flow.send(None)
    assert not isinstance(raised.value, ApprovalDenied)


def test_time_is_up() -> None:
    """A wait that ends undecided raises ApprovalPending and records nothing further."""
    flow = waiting()
    with pytest.raises(ApprovalPending):
        flow.send(None)


def test_held_again() -> None:
    """A check after approval that holds anew waits for the new request."""
    flow = waiting()
    flow.send(Approval("approved"))
    flow.send(Captured({"n": 1}))
    again = Decision(allowed=False, requires_approval=True, reason="ask", approval_id="appr-2")
    assert isinstance(flow.send(again), Record)
    assert flow.send(None) == AwaitApproval("a.b", WHO, "appr-2")


def test_an_argument_called_reason() -> None:
    """The reason of an entry is the gateway's, beside an argument of that name and a fact of the tool's."""
    flow = start(context={"reason": "the caller's own"})
    next(flow)
    record = flow.send(BLOCKED)
    assert isinstance(record, Record)
    assert record.reason == "no permission"
    assert record.context == {"reason": "the caller's own", "reason_": "no permission"}
    flow = start()
    next(flow)
    flow.send(ALLOWED)
    flow.send(None)
    record = flow.send(Returned(1.0, {"reason": "the tool's own"}))
    assert isinstance(record, Record)
    assert record.reason is None
