"""Flow of one guarded call: a generator that contains the rules of the call and yields requests for I/O (`_effects`).

    check ── allowed ──► write the intent ──► compare the arguments ──► run the tool ──► log success / failed
      │                                         └─ changed ─► log denied ──► ActionDenied
      ├───── gateway not reachable, fail_open=True ──► as allowed; the log entry contains fail_open
      ├───── denied ───► log denied ──► ActionDenied
      └───── approval required ─► log pending ─► raise, wait, or call on_hold (_approval_flow.py):
                 raise ──────► ApprovalPending
                 approved ───► capture the arguments again ── equal ──► check with the approval's id
                    │                            │                └─ denied: consumed by an equal call ─► check again
                    │                            └─ changed ─► check again
                 edited ─────► follow the chain of edits, wait for its last request
                    approved ► apply the edit ─┬─ exactly what was approved ─► check with the new approval's id
                                               └─ anything else ─────────────► log denied ──► ActionDenied
                 rejected ───► log denied ──► ApprovalDenied
                 expired ────► log denied ──► ApprovalExpired
                 otherwise ──► log denied ──► ActionDenied

The intent is a log entry with unknown outcome that is written before the tool runs. If another process runs the tool,
no intent is written and the flow ends. A resumed call first reads its approval request. It sends a check only if the
request is approved, and only with that approval.

`RunTool` is yielded only after an allowed decision, or, with `fail_open=True`, after a first check that no gateway
received.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from toolgate._approval_flow import (
    await_decision,
    deny,
    log_pending,
    resume_approval,
    withdraw_unanswered,
)
from toolgate._call import Arguments, Call
from toolgate._capture.context import clip, describe_error
from toolgate._capture.jsontext import Json
from toolgate._effects import (
    Cleanup,
    Effect,
    Flow,
    HandOver,
    Interrupted,
    Outcome,
    Raised,
    RunTool,
    SendCheck,
)
from toolgate._identity import identify_call, pausing_exceptions, take_authorization
from toolgate._models import Decision, Intent
from toolgate._process_state import PendingApproval, denied_actions_at
from toolgate._telemetry import logger, observe
from toolgate.errors import ConfigurationError, GatewayUnavailable

if TYPE_CHECKING:
    from toolgate._capture.context import Captured
    from toolgate._options import Options
    from toolgate._state import GuardState

__all__ = ["authorized_call", "begin_flow", "guarded_call"]

_MAX_NO_ANSWER: Final = 200


def begin_flow(
    options: Options,
    state: GuardState,
    arguments: Arguments,
    captured: Captured,
    resumes: str | None = None,
    *,
    runs_elsewhere: bool = False,
    verifies: bool = False,
) -> Flow:
    """Return the flow of a call that begins now: the generator that checks and logs the call.

    Args:
        options: Options of the guarded function or action block.
        state: State of the guard.
        arguments: The arguments of the call.
        captured: The redacted JSON copy of the arguments.
        resumes: Id of the approval request that the call continues; None for a new call.
        runs_elsewhere: True if another process runs the tool.
        verifies: True if the arguments must be compared with `captured` again before the tool runs.

    Raises:
        ConfigurationError: If no agent is set.
        OutboxFull: If the outbox cannot store the call's log entries.
    """
    explicit, default = (options.agent_id, None) if options.at_call else (None, options.agent_id)
    who = identify_call(explicit, default, state.settings.agent_id)
    if resumes is None and take_authorization(state, options.action, who.agent_id, captured.context):
        return authorized_call(arguments if verifies else None)
    if not options.fail_open:
        # A full outbox raises an error here, before the check. Otherwise the check could consume an approval for a call
        # that cannot run.
        state.recorder.ready(options.action)
    call = Call(
        options.action,
        who,
        arguments,
        captured,
        PendingApproval(state.pending_approvals),
        state.clock,
        options.on_hold,
        options.hold_timeout,
        resumes,
        fail_open=options.fail_open,
        denied_actions=denied_actions_at(state.settings.url) if options.fail_open else None,
        pauses=pausing_exceptions(),
        verifies=verifies,
        runs_elsewhere=runs_elsewhere,
    )
    return observe(guarded_call(call), call, options.tool)


def guarded_call(call: Call) -> Flow:
    """Return the flow of a guarded call: check the call, write an intent, yield `RunTool`, and log the tool's outcome.

    Raises:
        ActionDenied: The gateway denied the action, or an approver's edit cannot be applied.
        ApprovalDenied: An approver rejected the call.
        ApprovalPending: The call requires an approval, and no approver has decided yet.
        ApprovalExpired: The approval request expired.
        ConfigurationError: The approval request to continue belongs to another action or agent.
    """
    yield from _decide(call)
    if call.runs_elsewhere:
        if call.verifies:
            yield from _ensure_unchanged(call, None)
        context = call.context_with({"outcome": "unknown"})
        yield HandOver(context, call.who.agent_id, call.approval_id, call.decision_id)
        return
    intent = cast("Intent | None", (yield call.intent()))
    if call.verifies:
        yield from _ensure_unchanged(call, intent)
    # The reference to the arguments is dropped here. They may include the tool object itself, and the reference
    # would prevent its garbage collection.
    call.arguments = None
    outcome = cast("Outcome", (yield RunTool()))
    facts: dict[str, Json] = {**outcome.facts, "duration_ms": outcome.duration_ms}
    if not isinstance(outcome, Raised):
        yield call.entry("success", facts, intent)
    elif isinstance(outcome.error, call.pauses):
        yield call.entry("pending", {"reason": "the tool paused and will be called again", **facts}, intent)
    else:
        error = describe_error(outcome.error, call.captured.hidden, call.captured.patterns)
        yield call.entry("failed", {"error": error, **facts}, intent)


def authorized_call(arguments: Arguments | None) -> Flow:
    """Return the flow of a call that the check of the enclosing action block has allowed.

    The flow sends no check and writes no log entry, because the action block does both.

    Args:
        arguments: The arguments of the call. The flow compares them with their last copy, which was equal to the
            context of the block's check. None if no other code can change them.

    Raises:
        ConfigurationError: An argument has changed since the copy was made.
    """
    problem = None if arguments is None else _changed(arguments)
    if problem is not None:
        raise ConfigurationError(f"{problem}; the tool did not run")
    del arguments
    yield RunTool()


def _decide(call: Call) -> Flow:
    """Check the call, and again after each approval, until it is allowed; raise if it is denied or stays pending."""
    approval_id: str | None = None
    if call.resumes is not None:
        approval_id = yield from resume_approval(call, call.resumes)
    while True:
        decision = yield from _check(call, approval_id)
        if decision is None:
            return
        call.approval_id = decision.approval_id or approval_id
        call.decision_id = decision.decision_id
        if decision.allowed:
            return
        if decision.held:
            yield from log_pending(call, decision.reason)
            approval_id = yield from await_decision(call, decision.reason)
        elif approval_id is not None and call.resumes is None:
            # A call with equal arguments may have consumed the approval. The next check contains no approval id, so
            # that the gateway creates a new approval request.
            approval_id = None
            if call.edited and call.arguments is not None:
                call.arguments.discard_edit()
                call.captured, call.edited = call.arguments.capture(), False
        else:
            raise (yield from deny(call, decision.reason, reason_code=decision.reason_code))


def _check(call: Call, approval_id: str | None) -> Generator[Effect, Any, Decision | None]:
    """Send one check and return the decision, or None if the tool may run without one (`fail_open`)."""
    check = call.check(approval_id)
    try:
        decision = cast("Decision", (yield SendCheck(check)))
    except GatewayUnavailable as error:
        if approval_id is None and _fails_open(call, error):
            return None
        raise
    except (Interrupted, KeyboardInterrupt):
        if call.on_hold == "wait" and approval_id is None:
            yield Cleanup(partial(withdraw_unanswered, call, check))
        raise
    if logger.isEnabledFor(logging.INFO):
        approval_id = decision.approval_id or approval_id
        call.log("decision", decision.outcome, reason=decision.reason, approval_id=approval_id)
    return decision


def _fails_open(call: Call, error: GatewayUnavailable) -> bool:
    """Return True if the tool may run although the check failed and there is no decision.

    This is the case only if `fail_open` is set, the check was the first one of the call, no gateway can have received
    the check, and the gateway's last decision about this agent and action was not a denial.
    """
    if not call.fail_open or call.approval_id is not None or call.resumes is not None:
        return False
    denied = call.denied_actions
    if error.answered or error.reached or denied is None or denied.contains(call.who.agent_id, call.action):
        return False
    text = str(error)[:_MAX_NO_ANSWER]
    reason = (
        "the tool runs without a decision, because the gateway is unavailable and fail_open is set (unchecked "
        f"call number {denied.count_unchecked()} of this process): {text}"
    )
    call.log("fail_open", "unasked", reason=reason, level=logging.WARNING)
    call.no_answer = clip(text)
    return True


def _ensure_unchanged(call: Call, intent: Intent | None) -> Flow:
    """Deny the call if its arguments have changed since they were copied for the check."""
    problem = _changed(call.arguments) if call.arguments is not None else None
    if problem is not None:
        fix = "the tool did not run; pass a copy that no other code changes, or add the argument's name to ignore="
        raise (yield from deny(call, f"{problem}: {fix}", intent=intent))


def _changed(arguments: Arguments) -> str | None:
    try:
        name = arguments.difference()
    except Exception as error:  # noqa: BLE001 - arguments that cannot be compared count as changed
        return f"reading the arguments a second time failed with {type(error).__name__}"
    return None if name is None else f"the argument {name!r} changed while the gateway checked the call"
