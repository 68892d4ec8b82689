"""The road of one guarded call, without network, clock or thread.

    check ── allowed ──► run ──► record success / failed
      ├───── blocked ──► record denied ──► ActionDenied
      └───── held ─────► record pending ─► ApprovalPending, or wait:
                 approved ──► the arguments again ── equal ──► check with the approval's id
                    │                            │              └─ blocked: used up by an equal call ─► check anew
                    │                            └─ changed ─► check anew
                 denied ────► record denied ──► ApprovalDenied
                 expired ───► record denied ──► ApprovalExpired
                 otherwise ─► record denied ──► ActionDenied

Nothing is swallowed between decision and tool: only an allowed decision leads to `Run`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeAlias, cast

from toolgate.capture.context import Captured
from toolgate.capture.facts import clip, describe_error, with_facts
from toolgate.capture.jsontext import Json, dumps
from toolgate.decision import Decision
from toolgate.errors import ActionDenied, ApprovalDenied, ApprovalExpired, ApprovalPending, GuardError
from toolgate.identity import Identity
from toolgate.steps import (
    Approval,
    AwaitApproval,
    Check,
    LogStatus,
    Outcome,
    Raised,
    Recapture,
    Record,
    Run,
    Step,
)

__all__ = ["Call", "Flow", "OnHold", "guarded_call"]

OnHold: TypeAlias = Literal["raise", "wait"]
Flow: TypeAlias = Generator[Step, Any, None]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a guarded tool: what the gateway is asked about and the log entries tell."""

    action: str
    who: Identity
    captured: Captured
    on_hold: OnHold = "raise"
    approval_id: str | None = None
    decision_id: str | None = None

    def record(self, status: LogStatus, facts: dict[str, Json]) -> Record:
        """The log entry of this call with the given status and facts."""
        context = with_facts(self.captured.context, facts)
        told = facts.get("reason") if status in ("denied", "pending") else None
        reason = told if isinstance(told, str) else None
        return Record(self.action, self.who, status, context, self.approval_id, self.decision_id, reason)


def guarded_call(call: Call) -> Flow:
    """Ask, run, record.

    Yields:
        Steps to perform; each is sent its answer. After `Run` it is the tool's outcome.

    Raises:
        ActionDenied: The gateway blocked the action.
        ApprovalDenied: A person declined it.
        ApprovalPending: It waits for a person.
        ApprovalExpired: The approval request ran out.
    """
    call = yield from _permitted(call)
    outcome = cast("Outcome", (yield Run()))
    facts: dict[str, Json] = {**outcome.facts, "duration_ms": outcome.duration_ms}
    if isinstance(outcome, Raised):
        facts = {"error": describe_error(outcome.error, call.captured.hidden), **facts}
        yield call.record("failed", facts)
    else:
        yield call.record("success", facts)


def _permitted(call: Call) -> Generator[Step, Any, Call]:
    asked_with: str | None = None
    while True:
        check = Check(call.action, call.who, call.captured.context, asked_with)
        decision = cast("Decision", (yield check))
        call = replace(call, approval_id=decision.approval_id or asked_with, decision_id=decision.decision_id)
        if decision.allowed:
            return call
        if decision.blocked and asked_with is not None:
            # An equal call may have used the approval up meanwhile; asked without it, the gateway holds this one anew.
            asked_with = None
            continue
        if decision.blocked:
            yield from _refuse(call, decision.reason)
        yield from _approved(call, decision.reason)
        again = cast("Captured", (yield Recapture()))
        # As text: in Python True equals 1, in a context it does not.
        same = dumps(again.context, canonical=True) == dumps(call.captured.context, canonical=True)
        asked_with = call.approval_id if same else None
        call = replace(call, captured=again)


def _approved(call: Call, reason: str | None) -> Generator[Step, Any, None]:
    """Returns when a person approved, be it used up already; every other end is raised."""
    yield call.record("pending", {"reason": clip(reason or "")})
    approval_id = call.approval_id or ""
    pending = ApprovalPending(
        action=call.action, agent_id=call.who.agent_id, approval_id=approval_id, reason=reason
    )
    if call.on_hold == "raise":
        raise pending
    approval = cast("Approval | None", (yield AwaitApproval(call.action, call.who, approval_id)))
    if approval is None or approval.status == "pending":
        raise pending
    if approval.status in {"approved", "consumed"}:
        return
    if approval.status == "denied":
        yield from _refuse(call, approval.note or "the approval request was declined", ApprovalDenied)
    if approval.status == "expired":
        yield from _expire(call)
    yield from _refuse(call, approval.note or f"the approval request is {approval.status}")


def _refuse(
    call: Call, reason: str | None, kind: type[ActionDenied] = ActionDenied
) -> Generator[Step, Any, NoReturn]:
    reason = reason or "the gateway gave no reason"
    yield call.record("denied", {"reason": clip(reason)})
    raise kind(
        action=call.action,
        agent_id=call.who.agent_id,
        reason=reason,
        approval_id=call.approval_id,
        decision_id=call.decision_id,
    )


def _expire(call: Call) -> Generator[Step, Any, NoReturn]:
    # The gateway has no status of its own for this (spec §2); the reason says that nobody refused.
    reason = "the approval request expired before it was decided or used"
    yield call.record("denied", {"reason": reason})
    expired: GuardError = ApprovalExpired(
        action=call.action,
        agent_id=call.who.agent_id,
        approval_id=call.approval_id or "",
        reason=reason,
    )
    raise expired
