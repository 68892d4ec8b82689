"""The road of one guarded call, without network, clock or thread.

    check ── allowed ──► write down that it runs ──► compare the arguments ──► run ──► record success / failed
      │                                                └─ changed ─► record denied ──► ActionDenied
      ├───── unanswered, and it fails open ──► the same, saying so
      ├───── blocked ──► record denied ──► ActionDenied
      └───── held ─────► record pending ─► raise, wait, or ask on_hold (held.py):
                 raise ──────► ApprovalPending
                 approved ───► the arguments again ── equal ──► check with the approval's id
                    │                            │              └─ blocked: used up by an equal call ─► check anew
                    │                            └─ changed ─► check anew
                 replaced ───► follow to the edited approval, wait for it as for the first:
                    approved ► put the edit into the arguments, look at them again
                                 ├─ exactly what was approved ─► check with the new approval's id
                                 └─ anything else ─────────────► record denied ──► ActionDenied
                 denied ─────► record denied ──► ApprovalDenied
                 expired ────► record denied ──► ApprovalExpired
                 otherwise ──► record denied ──► ActionDenied

    A call whose tool runs elsewhere is handed over where it would be written down, and ends.

    A resumed call begins at its approval instead of a check, and is checked with that approval or not at all.

Nothing is swallowed between decision and tool: only an allowed decision leads to `Run`, and of a call that fails
open that its first check was answered by nobody.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any, cast

from toolgate._capture.context import Captured
from toolgate._capture.facts import clip, describe_error
from toolgate._capture.jsontext import Json
from toolgate._outbox.entries import Intent
from toolgate.calls import Call, Flow, OnHold, refused
from toolgate.decision import Decision
from toolgate.errors import ConfigurationError
from toolgate.held import continued, decided
from toolgate.steps import HandOver, Outcome, Raised, Recapture, Run, Step, Unanswered, Verify

__all__ = ["Call", "Flow", "OnHold", "guarded_call", "proved_call"]


def guarded_call(call: Call) -> Flow:
    """Ask, write down what is about to happen, run, record.

    Yields:
        Steps to perform; each is sent its answer. After `Run` it is the tool's outcome.

    Raises:
        ActionDenied: The gateway blocked the action, or an edit of it cannot be carried out.
        ApprovalDenied: A person declined it.
        ApprovalPending: It waits for a person.
        ApprovalExpired: The approval request ran out.
        ConfigurationError: The approval it was to continue is another action's.
    """
    call = yield from _permitted(call)
    if call.elsewhere:
        yield from _unchanged(call)
        yield HandOver(call.intend().record)
        return
    intent = cast("Intent | None", (yield call.intend()))
    yield from _unchanged(call, intent)
    outcome = cast("Outcome", (yield Run()))
    facts: dict[str, Json] = {**outcome.facts, "duration_ms": outcome.duration_ms}
    if isinstance(outcome, Raised) and isinstance(outcome.error, call.pauses):
        yield call.record(
            "pending", {"reason": "the tool paused and is to be called again", **facts}, intent=intent
        )
    elif isinstance(outcome, Raised):
        facts = {
            "error": describe_error(outcome.error, call.captured.hidden, call.captured.patterns),
            **facts,
        }
        yield call.record("failed", facts, intent=intent)
    else:
        yield call.record("success", facts, intent=intent)


def proved_call(*, verifies: bool) -> Flow:
    """Run a call that was decided and is recorded around it.

    Raises:
        ConfigurationError: An argument changed since.
    """
    why = cast("str | None", (yield Verify())) if verifies else None
    if why is not None:
        raise ConfigurationError(f"{why}: nothing ran")
    yield Run()


def _unchanged(call: Call, intent: Intent | None = None) -> Generator[Step, Any, None]:
    """Refuse the call if its arguments are no longer what the gateway decided about."""
    if not call.verifies:
        return
    why = cast("str | None", (yield Verify()))
    if why is not None:
        cure = "nothing ran; pass a copy that no other code changes, or name the argument in unbound="
        raise (yield from refused(call, f"{why}: {cure}", intent=intent))


def _permitted(call: Call) -> Generator[Step, Any, Call]:
    asked_with: str | None = None
    if call.resumes is not None:
        call, asked_with = yield from continued(call)
    while True:
        decision = cast("Decision | Unanswered", (yield call.check(asked_with)))
        if isinstance(decision, Unanswered):
            return replace(call, unanswered=clip(decision.why))
        call = replace(call, approval_id=decision.approval_id or asked_with, decision_id=decision.decision_id)
        if decision.allowed:
            return call
        if decision.blocked and asked_with is not None and call.resumes is None:
            # An equal call may have used the approval up meanwhile; asked without it, the gateway holds this one anew.
            asked_with = None
            if call.edited:
                given = cast("Captured", (yield Recapture(as_given=True)))
                call = replace(call, captured=given, edited=False)
            continue
        if decision.blocked:
            raise (yield from refused(call, decision.reason))
        yield call.record("pending", {"reason": clip(decision.reason or "")}, waits=call.on_hold == "wait")
        call, asked_with = yield from decided(call, decision.reason)
