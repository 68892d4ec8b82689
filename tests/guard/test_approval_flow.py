"""Calls that require an approval, without gateway or clock: waiting, edits, resumption, interruption."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from support.flows import WHO, Arguments, FlowRun

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    Decision,
    GatewayProtocolError,
    GatewayUnavailable,
)
from toolgate._call import OnHold
from toolgate._effects import (
    AskCaller,
    GetApproval,
    Returned,
    RunTool,
    SendCheck,
    WriteIntent,
)
from toolgate._models import Approval, Check

ALLOWED = Decision(allowed=True, requires_approval=False, decision_id="d-1")
BLOCKED = Decision(allowed=False, requires_approval=False, reason="no longer", decision_id="d-2")
HELD = Decision(allowed=False, requires_approval=True, reason="ask", approval_id="appr-1", decision_id="d-3")
ASKED: dict[str, Any] = {"n": 1}
EDITED: dict[str, Any] = {"n": 2}
REPLACED = Approval("replaced", replaced_by="appr-2")
APPROVED = Approval("approved", approved_context=EDITED)
PENDING = Approval("pending")
DOWN = GatewayUnavailable("down")


def caller(pending: ApprovalPending) -> None:
    pytest.fail("the flow calls no function of the caller")


def check(context: dict[str, Any], approval_id: str | None = None) -> SendCheck:
    return SendCheck(Check("a.b", WHO, context, approval_id))


def poll(approval_id: str = "appr-1") -> GetApproval:
    return GetApproval(approval_id, 30, polls=True)


def waiting(**options: Any) -> FlowRun:
    """A flow that polls its approval request."""
    run = FlowRun(on_hold="wait", **options)
    assert run.reply(HELD) == poll()
    assert run.entries[-1]["status"] == "pending"
    return run


def test_held_call_is_logged_as_pending_and_raises() -> None:
    for on_hold in ("raise", "pause"):
        run = FlowRun(on_hold=on_hold)
        error = run.refused(HELD, ApprovalPending)
        assert (error.approval_id, error.reason) == ("appr-1", "ask")
        (entry,) = run.entries
        assert (entry["status"], entry["approval_id"]) == ("pending", "appr-1")
        assert entry["context"] == {"n": 1, "reason": "ask"}


def test_approved_call_is_checked_with_its_approval_and_runs() -> None:
    run = waiting()
    assert run.reply(Approval("approved")) == check(ASKED, "appr-1")
    assert isinstance(run.reply(ALLOWED), WriteIntent)
    assert run.reply(None) == RunTool()
    run.reply(Returned(1.0))
    assert (run.entries[-1]["status"], run.entries[-1]["approval_id"]) == ("success", "appr-1")


@pytest.mark.parametrize("changed", [{"n": 2}, {"n": True}, {"n": 1, "m": None}])
def test_arguments_that_changed_while_waiting_are_a_new_request(changed: dict[str, Any]) -> None:
    run = waiting(arguments=Arguments(changed))
    assert run.reply(Approval("approved")) == check(changed)
    assert run.reply(HELD) == poll()


def test_approval_does_not_outlive_the_permission() -> None:
    run = waiting()
    run.reply(Approval("approved"))
    # Checked once more without the approval: an equal call may have consumed it.
    assert run.reply(BLOCKED) == check(ASKED)
    run.refused(BLOCKED, ActionDenied)
    assert run.entries[-1]["status"] == "denied"


@pytest.mark.parametrize("status", ["approved", "consumed"])
def test_call_whose_approval_an_equal_call_consumed_waits_for_its_own(status: Any) -> None:
    run = waiting()
    assert run.reply(Approval(status)) == check(ASKED, "appr-1")
    assert run.reply(BLOCKED) == check(ASKED)
    assert run.reply(replace(HELD, approval_id="appr-2")) == poll("appr-2")


def test_call_that_is_held_again_waits_for_the_new_request() -> None:
    run = waiting()
    run.reply(Approval("approved"))
    assert run.reply(replace(HELD, approval_id="appr-2")) == poll("appr-2")


@pytest.mark.parametrize(
    ("approval", "kind", "reason"),
    [
        (Approval("denied", "too much"), ApprovalDenied, "too much"),
        (Approval("denied"), ApprovalDenied, "rejected"),
        (Approval("expired"), ApprovalExpired, "expired"),
        (Approval("cancelled"), ActionDenied, "cancelled"),
        (Approval("replaced"), ActionDenied, "replaced"),
    ],
)
def test_request_that_is_not_approved_denies_the_call(
    approval: Approval, kind: type[Any], reason: str
) -> None:
    run = waiting()
    error = run.refused(approval, kind)
    assert type(error) is kind
    assert error.approval_id == "appr-1"
    assert run.entries[-1]["status"] == "denied"
    assert reason in run.entries[-1]["context"]["reason"]


def edited(**options: Any) -> FlowRun:
    """A flow whose request was edited; the edit is not decided yet."""
    run = waiting(**options)
    assert run.reply(REPLACED) == poll("appr-2")
    return run


def test_edit_is_applied_checked_run_and_logged() -> None:
    run = edited()
    assert run.reply(APPROVED) == check(EDITED, "appr-2")
    assert run.arguments.edited == (ASKED, EDITED)
    assert isinstance(run.reply(ALLOWED), WriteIntent)
    run.reply(None)
    run.reply(Returned(1.0))
    entry = run.entries[-1]
    assert (entry["status"], entry["approval_id"], entry["context"]["n"]) == ("success", "appr-2", 2)


def test_edit_that_the_arguments_reject_denies_the_call() -> None:
    run = edited()
    run.arguments.edit_problem = "'n' is hidden"
    error = run.refused(APPROVED, ActionDenied)
    assert "'n' is hidden" in error.reason
    assert error.approval_id == "appr-2"


def test_edit_that_raises_denies_the_call() -> None:
    class Odd(Arguments):
        def edit(self, asked: Any, approved: Any) -> str | None:
            raise ZeroDivisionError

    run = waiting(arguments=Odd(ASKED))
    run.reply(REPLACED)
    assert "ZeroDivisionError" in run.refused(APPROVED, ActionDenied).reason


@pytest.mark.parametrize("became", [{"n": 1}, {"n": 3}, {"n": True}, {"n": "2"}, {"n": 2, "m": None}, {}])
def test_edit_with_another_result_than_was_approved_denies_the_call(became: dict[str, Any]) -> None:
    run = edited()
    run.arguments.edit_result = became
    error = run.refused(APPROVED, ActionDenied)
    assert "would have a different value than the approved one" in error.reason
    assert "'m'" in error.reason if "m" in became else "'n'" in error.reason


@pytest.mark.parametrize("became", [2, 2.0, Decimal("2.00"), Decimal("2E0")])
def test_numbers_of_an_edit_are_compared_by_their_decimal_value(became: Any) -> None:
    run = edited()
    run.arguments.edit_result = {"n": became}
    assert run.reply(APPROVED) == check({"n": became}, "appr-2")


def test_edit_without_its_context_denies_the_call() -> None:
    assert "does not contain the new values" in edited().refused(Approval("approved"), ActionDenied).reason


@pytest.mark.parametrize(
    ("approval", "kind"),
    [
        (Approval("denied", "too much"), ApprovalDenied),
        (Approval("expired"), ApprovalExpired),
        (Approval("cancelled"), ActionDenied),
    ],
)
def test_edit_that_is_not_approved_denies_the_call(approval: Approval, kind: type[Any]) -> None:
    assert edited().refused(approval, kind).approval_id == "appr-2"


def test_chain_of_edits_is_followed_to_its_end() -> None:
    run = waiting()
    for number in range(2, 6):
        approval = Approval("replaced", replaced_by=f"appr-{number}", approved_context={"n": number})
        assert run.reply(approval) == poll(f"appr-{number}")
    run.reply(Approval("approved", approved_context={"n": 9}))
    assert run.arguments.edited == (ASKED, {"n": 9})


def test_chain_without_end_denies_the_call() -> None:
    run = waiting()
    for number in range(2, 33):
        run.reply(Approval("replaced", replaced_by=f"appr-{number}"))
    error = run.refused(Approval("replaced", replaced_by="appr-33"), ActionDenied)
    assert "too long chain" in error.reason


def test_circle_of_edits_denies_the_call() -> None:
    error = edited().refused(Approval("replaced", replaced_by="appr-1"), ActionDenied)
    assert "too long chain" in error.reason


def test_edit_that_an_equal_call_consumed_is_discarded() -> None:
    run = edited()
    run.reply(APPROVED)
    assert run.reply(BLOCKED) == check(ASKED)
    assert "no longer" in run.refused(BLOCKED, ActionDenied).reason


def test_on_hold_function_that_returns_check_reads_the_approval_at_once() -> None:
    run = FlowRun(on_hold=caller)
    assert isinstance(run.reply(HELD), AskCaller)
    for _ in range(2):
        assert run.reply("check") == GetApproval("appr-1")
        assert run.reply(REPLACED) == GetApproval("appr-2")
        assert isinstance(run.reply(PENDING), AskCaller)
    run.reply("check")
    run.reply(REPLACED)
    assert run.reply(APPROVED) == check(EDITED, "appr-2")


def test_on_hold_function_that_returns_wait_polls() -> None:
    run = FlowRun(on_hold=caller)
    run.reply(HELD)
    assert run.reply("wait") == poll()
    assert run.reply(Approval("approved")) == check(ASKED, "appr-1")


def test_on_hold_function_that_returns_raise_raises() -> None:
    run = FlowRun(on_hold=caller)
    run.reply(HELD)
    assert run.refused("raise", ApprovalPending).approval_id == "appr-1"


# Resumption


def resumed(on_hold: OnHold = "raise", **options: Any) -> FlowRun:
    run = FlowRun(on_hold=on_hold, resumes="appr-9", **options)
    assert run.effect == GetApproval("appr-9")
    return run


def test_resumed_call_begins_at_its_approval() -> None:
    run = resumed()
    approval = Approval("approved", context=ASKED, action="a.b", agent_id="agent-1")
    assert run.reply(approval) == check(ASKED, "appr-9")
    assert isinstance(run.reply(ALLOWED), WriteIntent)
    assert run.reply(None) == RunTool()


def test_resumed_call_is_checked_with_its_approval_or_not_at_all() -> None:
    run = resumed("wait")
    run.reply(Approval("approved"))
    assert "no longer" in run.refused(BLOCKED, ActionDenied).reason


def test_resumed_call_with_changed_arguments_is_denied() -> None:
    run = resumed("wait", arguments=Arguments(EDITED))
    assert "changed" in run.refused(Approval("approved"), ActionDenied).reason
    assert run.entries[-1]["context"]["n"] == 1


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
@pytest.mark.parametrize("on_hold", ["raise", "wait", caller])
def test_resumed_request_in_a_final_state_denies_the_call(
    on_hold: OnHold, approval: Approval, kind: type[Any]
) -> None:
    assert resumed(on_hold).refused(approval, kind).approval_id == "appr-9"


def test_resumed_request_that_is_pending_does_what_on_hold_says() -> None:
    run = resumed()
    assert run.refused(PENDING, ApprovalPending).approval_id == "appr-9"
    assert run.entries[-1]["status"] == "pending"
    assert isinstance(resumed(caller).reply(PENDING), AskCaller)
    assert resumed("wait").reply(PENDING) == poll("appr-9")


def test_resumed_request_that_was_edited_brings_the_edit() -> None:
    run = resumed()
    approval = Approval("replaced", replaced_by="appr-2", context=ASKED)
    assert run.reply(approval) == GetApproval("appr-2")
    assert run.reply(APPROVED) == check(EDITED, "appr-2")
    assert "no longer" in run.refused(BLOCKED, ActionDenied).reason


@pytest.mark.parametrize("status", ["pending", "approved", "replaced"])
def test_request_of_another_call_is_refused_and_the_field_named(status: Any) -> None:
    approval = Approval(status, context={"n": 5, "m": 1}, replaced_by="appr-2")
    assert "'m'" in resumed("wait").refused(approval, ActionDenied).reason


@pytest.mark.parametrize("other", [{"action": "a.c"}, {"agent_id": "agent-2"}])
def test_request_of_another_action_or_agent_is_a_configuration_error(other: dict[str, Any]) -> None:
    run = resumed("wait")
    with pytest.raises(ConfigurationError, match="resume the tool call for which the request was created"):
        run.reply(Approval("approved", **other))
    assert run.entries == []


def test_resumed_request_that_does_not_exist_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="the gateway has no approval request"):
        resumed().fail(GatewayProtocolError("not found", status=404))


def test_edit_that_does_not_exist_is_a_protocol_error() -> None:
    run = resumed()
    run.reply(Approval("replaced", replaced_by="appr-2", context=ASKED))
    with pytest.raises(GatewayProtocolError):
        run.fail(GatewayProtocolError("not found", status=404))


def test_call_with_an_id_outlasts_an_outage_to_be_repeated() -> None:
    run = FlowRun(who=replace(WHO, call_id="call-1"))
    assert run.reply(HELD) == GetApproval("appr-1")
    assert run.refused(DOWN, ApprovalPending).approval_id == "appr-1"


def test_call_with_an_id_finds_its_decision_when_it_is_repeated() -> None:
    who = replace(WHO, call_id="call-1")
    run = FlowRun(who=who)
    run.reply(HELD)
    assert run.reply(Approval("approved")) == SendCheck(Check("a.b", who, ASKED, "appr-1"))
