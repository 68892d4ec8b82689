"""Decisions, outcomes and failures of one call, without gateway, clock or tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.flows import WHO, Arguments, FlowRun

from toolgate import ActionDenied, ConfigurationError, Decision, GatewayProtocolError, GatewayUnavailable
from toolgate._effects import (
    Cleanup,
    HandOver,
    Raised,
    Returned,
    RunTool,
    SendCheck,
    WriteEntry,
    WriteIntent,
)
from toolgate._flow import authorized_call
from toolgate._models import Check, Intent
from toolgate._process_state import DeniedActions

ALLOWED = Decision(allowed=True, requires_approval=False, decision_id="d-1")
BLOCKED = Decision(
    allowed=False,
    requires_approval=False,
    reason="no permission",
    decision_id="d-2",
    reason_code="no_permission",
)
HELD = Decision(allowed=False, requires_approval=True, reason="ask", approval_id="appr-1", decision_id="d-3")
INTENT = Intent(7, "key", 1)
UNREACHED = GatewayUnavailable("no route to host", answered=False, reached=False)


def checked(context: dict[str, Any], approval_id: str | None = None) -> SendCheck:
    return SendCheck(Check("a.b", WHO, context, approval_id))


def allowed(**options: Any) -> FlowRun:
    """A flow at its tool's turn."""
    run = FlowRun(**options)
    assert isinstance(run.reply(ALLOWED), WriteIntent)
    assert run.reply(INTENT) == RunTool()
    return run


def test_allowed_call_writes_an_intent_runs_and_logs_success() -> None:
    run = FlowRun()
    assert run.effect == checked({"n": 1})
    effect = run.reply(ALLOWED)
    assert isinstance(effect, WriteIntent)
    assert not effect.may_be_lost
    assert (
        effect.entry.body.items()
        >= {
            "action": "a.b",
            "agent_id": "agent-1",
            "run_id": "run-1",
            "status": "pending",
            "context": {"n": 1, "outcome": "unknown"},
            "decision_id": "d-1",
        }.items()
    )
    assert run.reply(INTENT) == RunTool()
    assert run.entries == []
    assert run.reply(Returned(1.5, {"rows": 3})) is None
    (entry,) = run.entries
    assert (entry["status"], entry["context"]) == ("success", {"n": 1, "rows": 3, "duration_ms": 1.5})
    assert run.keys == [INTENT.key]


@pytest.mark.parametrize(
    "error", [ValueError("saw hunter22"), StopIteration("saw hunter22"), GeneratorExit("x")]
)
def test_exception_of_the_tool_is_logged_without_hidden_values(error: BaseException) -> None:
    run = allowed()
    run.reply(Raised(error, 2.0))
    (entry,) = run.entries
    assert entry["status"] == "failed"
    assert entry["context"]["error"] == {
        "type": type(error).__name__,
        "message": str(error).replace("hunter22", "[redacted]"),
    }
    assert entry["context"]["duration_ms"] == 2.0


def test_tool_that_pauses_is_logged_as_pending() -> None:
    run = allowed(pauses=(ValueError,))
    run.reply(Raised(ValueError("later"), 2.0))
    (entry,) = run.entries
    assert entry["status"] == "pending"
    assert "called again" in entry["context"]["reason"]


def test_facts_never_overwrite_arguments() -> None:
    run = allowed(context={"error": "mine", "duration_ms": 7, "duration_ms_": 8})
    run.reply(Raised(ValueError("x"), 2.0))
    assert run.entries[0]["context"] == {
        "error": "mine",
        "duration_ms": 7,
        "duration_ms_": 8,
        "error_": {"type": "ValueError", "message": "x"},
        "duration_ms__": 2.0,
    }


def test_denied_call_is_logged_and_does_not_run() -> None:
    run = FlowRun()
    error = run.refused(BLOCKED, ActionDenied)
    assert (error.reason, error.action, error.agent_id) == ("no permission", "a.b", "agent-1")
    assert (error.decision_id, error.reason_code) == ("d-2", "no_permission")
    (entry,) = run.entries
    assert (entry["status"], entry["decision_id"]) == ("denied", "d-2")
    assert entry["context"] == {"n": 1, "reason": "no permission"}


def test_reason_of_a_denial_stands_beside_an_argument_of_that_name() -> None:
    run = FlowRun(context={"reason": "the caller's own"})
    run.refused(BLOCKED, ActionDenied)
    assert run.entries[0]["context"] == {"reason": "the caller's own", "reason_": "no permission"}


def test_argument_that_changes_during_the_check_denies_the_call() -> None:
    arguments = Arguments({"n": 1})
    run = FlowRun(arguments=arguments, verifies=True)
    run.reply(ALLOWED)
    arguments.changed = "n"
    error = run.refused(INTENT, ActionDenied)
    assert "'n' changed" in error.reason
    assert run.entries[0]["status"] == "denied"
    # The denial replaces the intent: no entry says that the outcome is unknown.
    assert run.keys == [INTENT.key]


def test_arguments_that_cannot_be_read_again_deny_the_call() -> None:
    class Unreadable(Arguments):
        def difference(self) -> str | None:
            raise ZeroDivisionError

    run = FlowRun(arguments=Unreadable({"n": 1}), verifies=True)
    run.reply(ALLOWED)
    assert "ZeroDivisionError" in run.refused(INTENT, ActionDenied).reason


def test_arguments_are_released_before_the_tool_runs() -> None:
    assert allowed().call.arguments is None


def test_call_that_runs_elsewhere_is_handed_over_without_an_entry() -> None:
    run = FlowRun(runs_elsewhere=True, verifies=True)
    assert run.reply(ALLOWED) == HandOver({"n": 1, "outcome": "unknown"}, "agent-1", None, "d-1")
    assert run.reply(None) is None
    assert (run.entries, run.has_run) == ([], False)


def test_call_that_runs_elsewhere_is_denied_if_its_arguments_changed() -> None:
    run = FlowRun(runs_elsewhere=True, verifies=True)
    run.arguments.changed = "n"
    assert "'n' changed" in run.refused(ALLOWED, ActionDenied).reason


@pytest.mark.parametrize(
    "error", [UNREACHED, GatewayProtocolError("not a decision"), ConfigurationError("no key")]
)
def test_call_without_a_decision_does_not_run(error: Exception) -> None:
    run = FlowRun()
    assert run.refused(error, type(error)) is error
    assert run.entries == []


def fails_open(denied: DeniedActions | None = None, **options: Any) -> FlowRun:
    return FlowRun(fail_open=True, denied_actions=denied or DeniedActions(), **options)


def test_call_that_fails_open_runs_without_a_decision_and_says_so() -> None:
    run = fails_open()
    effect = run.fail(UNREACHED)
    assert isinstance(effect, WriteIntent)
    assert effect.may_be_lost
    assert effect.entry.body["context"] == {
        "n": 1,
        "outcome": "unknown",
        "fail_open": True,
        "no_answer": "no route to host",
    }
    assert run.reply(None) == RunTool()
    run.reply(Returned(1.0))
    assert run.entries[0]["context"]["fail_open"] is True


@pytest.mark.parametrize(
    "error",
    [
        GatewayUnavailable("503", status=503),
        GatewayUnavailable("reset", answered=False, reached=True),
        GatewayUnavailable("half", answered=True, reached=False),
        GatewayProtocolError("not a decision"),
    ],
)
def test_call_does_not_fail_open_after_a_response_or_a_connection(error: Exception) -> None:
    assert fails_open().refused(error, type(error)) is error


def test_denied_action_does_not_fail_open() -> None:
    denied = DeniedActions()
    denied.note(Check("a.b", WHO, {}), BLOCKED)
    assert fails_open(denied).refused(UNREACHED, GatewayUnavailable) is UNREACHED


def test_held_call_does_not_fail_open_later() -> None:
    run = fails_open(on_hold=lambda _: "check")
    run.reply(HELD)
    assert run.refused(UNREACHED, GatewayUnavailable) is UNREACHED


def test_resumed_call_does_not_fail_open() -> None:
    run = fails_open(resumes="appr-1")
    assert run.refused(UNREACHED, GatewayUnavailable) is UNREACHED


def test_interrupted_check_of_a_waiting_call_is_cleaned_up() -> None:
    assert isinstance(FlowRun(on_hold="wait").interrupt(), Cleanup)


def test_interrupted_check_of_other_calls_leaves_the_request() -> None:
    assert FlowRun(on_hold="raise").interrupt() is None


@pytest.mark.parametrize("decision", [ALLOWED, BLOCKED])
def test_cleanup_of_an_interrupted_check_changes_nothing_without_a_request(decision: Decision) -> None:
    cleanup = FlowRun(on_hold="wait").interrupt()
    assert isinstance(cleanup, Cleanup)
    flow = cleanup.make_flow()
    effect = next(flow)
    assert isinstance(effect, SendCheck)
    assert effect.check.dry_run
    with pytest.raises(StopIteration):
        flow.send(decision)


def test_cleanup_of_an_interrupted_check_repeats_it_with_its_key() -> None:
    run = FlowRun(on_hold="wait")
    sent = run.effect
    assert isinstance(sent, SendCheck)
    cleanup = run.interrupt()
    assert isinstance(cleanup, Cleanup)
    flow = cleanup.make_flow()
    next(flow)
    repeated = flow.send(HELD)
    assert isinstance(repeated, SendCheck)
    assert repeated.check.key == sent.check.key
    assert getattr(flow.send(HELD), "approval_id", None) == "appr-1"


def test_closed_flow_yields_nothing_more() -> None:
    FlowRun(on_hold="wait").flow.close()
    run = FlowRun(on_hold="wait")
    run.reply(HELD)
    run.flow.close()


def test_pending_entry_of_a_call_with_an_id_is_one_entry() -> None:
    who = replace(WHO, call_id="call-1")
    runs = [FlowRun(who=who) for _ in range(2)]
    for run in runs:
        run.refused(BLOCKED, ActionDenied)
    assert runs[0].keys == runs[1].keys
    assert runs[0].entries == runs[1].entries
    other = FlowRun(who=replace(who, call_id="call-2"))
    other.refused(BLOCKED, ActionDenied)
    assert other.keys != runs[0].keys


def test_authorized_call_runs_unless_an_argument_changed() -> None:
    arguments = Arguments({"n": 1})
    assert next(authorized_call(arguments)) == RunTool()
    assert next(authorized_call(None)) == RunTool()
    arguments.changed = "n"
    with pytest.raises(ConfigurationError, match="the tool did not run"):
        next(authorized_call(arguments))


def test_log_entries_are_effects() -> None:
    """`FlowRun` collects them: the flow itself writes nothing."""
    flow = FlowRun().flow
    assert isinstance(flow.send(BLOCKED), WriteEntry)
