"""Held calls, driven by hand: edits, chains of them, and approvals taken up again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from toolgate.steps import (
    Approval,
    AskCaller,
    AwaitApproval,
    Check,
    Edit,
    Inapplicable,
    Intend,
    Look,
    Recapture,
    Record,
    Returned,
    Run,
)

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    Decision,
)
from toolgate._call import Call, OnHold
from toolgate._capture.context import Captured
from toolgate._effects import Flow
from toolgate._flow import guarded_call
from toolgate._identity import Identity

WHO = Identity("agent-1", "run-1")
ALLOWED = Decision(allowed=True, requires_approval=False, decision_id="d-1")
BLOCKED = Decision(allowed=False, requires_approval=False, reason="no longer", decision_id="d-2")
HELD = Decision(allowed=False, requires_approval=True, reason="ask", approval_id="appr-1", decision_id="d-3")
ASKED: dict[str, Any] = {"n": 1}
EDITED: dict[str, Any] = {"n": 2}
REPLACED = Approval("replaced", replaced_by="appr-2")
APPROVED = Approval("approved", approved_context=EDITED)


def holder(pending: ApprovalPending) -> None:
    pytest.fail("the flow asks nobody itself")


def start(on_hold: OnHold = "wait", resumes: str | None = None) -> Flow:
    return guarded_call(Call("a.b", WHO, Captured(ASKED), on_hold, resumes))


def waiting(on_hold: OnHold = "wait") -> Flow:
    """A flow that has been held and asks what became of its approval."""
    flow = start(on_hold)
    next(flow)
    record = flow.send(HELD)
    assert isinstance(record, Record)
    assert record.waits is (on_hold == "wait")
    step = flow.send(None)
    if on_hold == "wait":
        assert step == AwaitApproval("a.b", WHO, "appr-1")
    return flow


def edited() -> Flow:
    """A flow whose approval has been edited and approved."""
    flow = waiting()
    assert flow.send(REPLACED) == AwaitApproval("a.b", WHO, "appr-2")
    assert flow.send(APPROVED) == Edit(ASKED, EDITED)
    return flow


def refused(flow: Flow, answer: object, kind: type[Exception] = ActionDenied) -> Any:
    """The error of a flow that records that it is refused, and does not run."""
    record = flow.send(answer)
    assert isinstance(record, Record)
    assert record.status == "denied"
    with pytest.raises(kind) as raised:
        flow.send(None)
    return raised.value


def test_edited() -> None:
    """An edit is put into the arguments, checked with the new approval's id, run and recorded."""
    flow = edited()
    assert flow.send(Captured(EDITED)) == Check("a.b", WHO, EDITED, "appr-2")
    assert isinstance(flow.send(ALLOWED), Intend)
    assert flow.send(None) == Run()
    record = flow.send(Returned(1.0))
    assert isinstance(record, Record)
    assert (record.status, record.approval_id, record.context["n"]) == ("success", "appr-2", 2)


def test_an_edit_that_cannot_be_applied() -> None:
    """An edit that the arguments cannot take never leads to a check, and so never to the tool."""
    flow = edited()
    error = refused(flow, Inapplicable("'n' is hidden"))
    assert "'n' is hidden" in error.reason
    assert error.approval_id == "appr-2"


@pytest.mark.parametrize("became", [{"n": 1}, {"n": 3}, {"n": True}, {"n": "2"}, {"n": 2, "m": None}, {}])
def test_an_edit_that_came_out_otherwise(became: dict[str, Any]) -> None:
    """Arguments that are not exactly what was approved are refused, naming the field; nothing is asked."""
    error = refused(edited(), Captured(became))
    assert "would not be what was approved" in error.reason
    assert "'m'" in error.reason if "m" in became else "'n'" in error.reason


@pytest.mark.parametrize("became", [2, 2.0, Decimal("2.00"), Decimal("2E0")])
def test_numbers_are_compared_as_the_gateway_does(became: Any) -> None:
    """A number is the same by its decimal value, however it is written."""
    flow = edited()
    assert flow.send(Captured({"n": became})) == Check("a.b", WHO, {"n": became}, "appr-2")


def test_an_edit_nobody_tells() -> None:
    """A replaced approval whose new context is not shown is refused: nothing is guessed."""
    flow = waiting()
    flow.send(REPLACED)
    assert "does not say" in refused(flow, Approval("approved")).reason


def test_replaced_by_nobody() -> None:
    """An older gateway that names no successor leaves nothing to follow."""
    assert "replaced" in refused(waiting(), Approval("replaced")).reason


@pytest.mark.parametrize(
    ("approval", "kind"),
    [
        (Approval("denied", "too much"), ApprovalDenied),
        (Approval("expired"), ApprovalExpired),
        (Approval("cancelled"), ActionDenied),
    ],
)
def test_edited_and_not_approved(approval: Approval, kind: type[Exception]) -> None:
    """An edit that a second person declines, or nobody decides, ends as any approval does."""
    flow = waiting()
    flow.send(REPLACED)
    assert refused(flow, approval, kind).approval_id == "appr-2"


def test_edited_and_time_is_up() -> None:
    """Who runs out of time behind an edit is told the first id, by which all edits can be followed."""
    flow = waiting()
    flow.send(REPLACED)
    with pytest.raises(ApprovalPending) as raised:
        flow.send(None)
    assert raised.value.approval_id == "appr-1"


def test_a_chain_of_edits() -> None:
    """Each edit is followed to the next, and the last one counts."""
    flow = waiting()
    for number in range(2, 6):
        step = flow.send(Approval("replaced", replaced_by=f"appr-{number}", approved_context={"n": number}))
        assert step == AwaitApproval("a.b", WHO, f"appr-{number}")
    assert flow.send(Approval("approved", approved_context={"n": 9})) == Edit(ASKED, {"n": 9})


def test_an_endless_chain() -> None:
    """A chain that never ends is refused."""
    flow = waiting()
    for number in range(2, 100):
        step = flow.send(Approval("replaced", replaced_by=f"appr-{number}"))
        if isinstance(step, Record):
            break
    else:
        pytest.fail("the chain was followed without end")
    with pytest.raises(ActionDenied, match="without end"):
        flow.send(None)


def test_a_circle() -> None:
    """A chain that comes back to where it was is refused."""
    flow = waiting()
    flow.send(REPLACED)
    assert "without end" in refused(flow, Approval("replaced", replaced_by="appr-1")).reason


def test_edit_used_up_by_an_equal_call() -> None:
    """Whose edit was used by an equal call is asked about anew, as it was given."""
    flow = edited()
    flow.send(Captured(EDITED))
    assert flow.send(BLOCKED) == Recapture(as_given=True)
    assert flow.send(Captured(ASKED)) == Check("a.b", WHO, ASKED)
    assert "no longer" in refused(flow, BLOCKED).reason


def test_check_with_an_edit() -> None:
    """A woken call follows edits as a waiting one does, without waiting; while pending it asks again."""
    flow = waiting(holder)
    look = Look("a.b", WHO, "appr-1")
    assert flow.send("check") == look
    assert flow.send(REPLACED) == Look("a.b", WHO, "appr-2")
    assert isinstance(flow.send(Approval("pending")), AskCaller)
    assert flow.send("check") == look
    assert flow.send(REPLACED) == Look("a.b", WHO, "appr-2")
    assert flow.send(APPROVED) == Edit(ASKED, EDITED)


RESUMED = Look("a.b", WHO, "appr-9", resumed=True)


def test_resumed_and_approved() -> None:
    """A resumed call begins at its approval, and is checked with it."""
    flow = start("raise", "appr-9")
    assert next(flow) == RESUMED
    assert flow.send(Approval("approved", context=ASKED, action="a.b", agent_id="agent-1")) == Recapture()
    assert flow.send(Captured(ASKED)) == Check("a.b", WHO, ASKED, "appr-9")
    assert isinstance(flow.send(ALLOWED), Intend)
    assert flow.send(None) == Run()


def test_resumed_and_blocked() -> None:
    """A resumed call passes by its approval or not at all: nothing is asked anew."""
    flow = start("wait", "appr-9")
    next(flow)
    flow.send(Approval("approved"))
    flow.send(Captured(ASKED))
    assert "no longer" in refused(flow, BLOCKED).reason


def test_resumed_and_changed() -> None:
    """Arguments that change under a resumed call are refused: the approval was for others."""
    flow = start("wait", "appr-9")
    next(flow)
    flow.send(Approval("approved"))
    assert "changed" in refused(flow, Captured(EDITED)).reason


@pytest.mark.parametrize(
    ("approval", "kind"),
    [
        (Approval("denied", "too much"), ApprovalDenied),
        (Approval("expired"), ApprovalExpired),
        (Approval("cancelled"), ActionDenied),
        (Approval("consumed"), ActionDenied),
        (Approval("replaced"), ActionDenied),
    ],
)
@pytest.mark.parametrize("on_hold", ["raise", "wait", holder])
def test_resumed_and_over(on_hold: OnHold, approval: Approval, kind: type[Exception]) -> None:
    """A resumed approval that is over in any way is the error it always is; nothing is checked."""
    flow = start(on_hold, "appr-9")
    next(flow)
    assert refused(flow, approval, kind).approval_id == "appr-9"


def test_resumed_and_pending() -> None:
    """A resumed approval nobody decided does what on_hold says."""
    flow = start("raise", "appr-9")
    next(flow)
    assert isinstance(flow.send(Approval("pending")), Record)
    with pytest.raises(ApprovalPending) as raised:
        flow.send(None)
    assert raised.value.approval_id == "appr-9"
    flow = start(holder, "appr-9")
    next(flow)
    flow.send(Approval("pending"))
    assert isinstance(flow.send(None), AskCaller)
    flow = start("wait", "appr-9")
    assert next(flow) == Look("a.b", WHO, "appr-9", resumed=True, patient=True)
    flow.send(Approval("pending"))
    assert flow.send(None) == AwaitApproval("a.b", WHO, "appr-9")


def test_resumed_and_replaced() -> None:
    """A resumed approval that was edited brings the edit with it."""
    flow = start("raise", "appr-9")
    next(flow)
    assert flow.send(Approval("replaced", replaced_by="appr-2", context=ASKED)) == Look("a.b", WHO, "appr-2")
    assert flow.send(APPROVED) == Edit(ASKED, EDITED)
    assert flow.send(Captured(EDITED)) == Check("a.b", WHO, EDITED, "appr-2")
    assert "no longer" in refused(flow, BLOCKED).reason


@pytest.mark.parametrize("status", ["pending", "approved", "replaced"])
def test_another_calls_approval(status: Any) -> None:
    """Another call's approval is refused at once, naming the field: its edit is none of this call's."""
    flow = start("wait", "appr-9")
    next(flow)
    approval = Approval(status, context={"n": 5, "m": 1}, replaced_by="appr-2")
    assert "'m'" in refused(flow, approval).reason


@pytest.mark.parametrize("other", [{"action": "a.c"}, {"agent_id": "agent-2"}])
def test_another_actions_approval(other: dict[str, Any]) -> None:
    """An approval of another action or agent is the caller's mistake, and named."""
    flow = start("wait", "appr-9")
    next(flow)
    with pytest.raises(ConfigurationError, match=next(iter(other.values()))):
        flow.send(Approval("approved", **other))
