"""What the performers say of what they do: to the standard logging, to the gateway's log, in errors."""

from __future__ import annotations

import hashlib
import logging
from http import HTTPStatus
from typing import Final, cast

from toolgate._capture.jsontext import Json, dumps
from toolgate._outbox.entries import Entry, new_entry
from toolgate.decision import Decision
from toolgate.errors import ConfigurationError, GatewayProtocolError
from toolgate.events import tell
from toolgate.steps import Approval, AwaitApproval, Check, Intend, Look, Record

_KEY_LENGTH: Final = 32
#: what differs from one entry of a call to the next
_CHANGING: Final = frozenset({"decision_id", "occurred_at", "traceparent"})

__all__ = [
    "entry_of",
    "intended",
    "not_known",
    "tell_approval",
    "tell_decision",
    "tell_not_known",
    "tell_waiting",
    "tell_withdrawn",
]


def tell_decision(check: Check, decision: Decision) -> Decision:
    """Write the decision to the standard logging and hand it on."""
    tell(
        "decision",
        check.action,
        check.who.agent_id,
        decision.outcome,
        reason=decision.reason,
        approval_id=decision.approval_id or check.approval_id,
    )
    return decision


def tell_waiting(step: AwaitApproval) -> None:
    """Write to the standard logging that a call waits."""
    tell("waiting", step.action, step.who.agent_id, "held", approval_id=step.approval_id)


def tell_approval(step: AwaitApproval | Look, approval: Approval) -> Approval:
    """Write an approval to the standard logging, if it is one, and hand it on."""
    if approval.status in {"approved", "replaced"}:
        tell(
            "approved" if approval.status == "approved" else "edited",
            step.action,
            step.who.agent_id,
            approval.status,
            reason=approval.note,
            approval_id=step.approval_id,
        )
    return approval


def tell_withdrawn(step: AwaitApproval | Record, error: Exception | None) -> None:
    """Write to the standard logging that a request was withdrawn, or why it was not."""
    tell(
        "cancelled" if error is None else "cancel_failed",
        step.action,
        step.who.agent_id,
        "cancelled" if error is None else "held",
        reason=None if error is None else str(error),
        approval_id=step.approval_id,
        level=logging.INFO if error is None else logging.WARNING,
    )


def tell_not_known(check: Check, error: Exception) -> None:
    """Write to the standard logging that a check was given up, and that nobody knows whether it left a request."""
    tell(
        "cancel_failed",
        check.action,
        check.who.agent_id,
        "unknown",
        reason=str(error),
        level=logging.WARNING,
    )


def not_known(step: Look, error: GatewayProtocolError) -> ConfigurationError | None:
    """The caller's mistake behind an approval that cannot be looked at, if it is one: they named it."""
    if not step.resumed or error.status != HTTPStatus.NOT_FOUND:
        return None
    return ConfigurationError(
        f"approval {step.approval_id!r} is not known to the gateway, or not this key's; "
        "resume with the approval_id of an ApprovalPending of this agent"
    )


def entry_of(step: Record) -> Entry:
    """The log entry a step records, told to the standard logging as well."""
    tell(
        "record",
        step.action,
        step.who.agent_id,
        step.status,
        reason=step.reason,
        approval_id=step.approval_id,
    )
    entry = _entry(step)
    return _of_named_call(entry, step) if step.status in ("denied", "pending") else entry


def intended(step: Intend) -> Entry:
    """The log entry of a call of which nothing is heard any more."""
    return _entry(step.record)


def _entry(step: Record) -> Entry:
    return new_entry(
        action=step.action,
        agent_id=step.who.agent_id,
        status=step.status,
        context=step.context,
        key=None if step.intent is None else step.intent.key,
        approval_id=step.approval_id,
        decision_id=step.decision_id,
        run_id=step.who.run_id,
        call_id=step.who.call_id,
    )


def _of_named_call(entry: Entry, step: Record) -> Entry:
    """What became of a call that bears a name, before its tool ran: one entry, however often it is called again."""
    who = step.who
    if who.call_id is None:
        return entry
    told = [step.status, step.action, who.agent_id, who.run_id, who.call_id, step.approval_id]
    key = hashlib.sha256(dumps(cast("list[Json]", told)).encode()).hexdigest()[:_KEY_LENGTH]
    # Word for word the same the next time: so nothing is in it that changes from one answer to the next.
    body = {name: value for name, value in entry.body.items() if name not in _CHANGING}
    return Entry(body, key)
