"""Flow of a call that requires an approval: ask the caller, poll, follow edits, withdraw when interrupted. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from toolgate._call import Call, OnHoldWord
from toolgate._capture.facts import clip
from toolgate._capture.jsontext import Json, dumps, first_difference
from toolgate._effects import (
    AskCaller,
    CancelApproval,
    Cleanup,
    Effect,
    Flow,
    GetApproval,
    Interrupted,
    SendCheck,
    Sleep,
)
from toolgate._models import Approval, Check, Decision
from toolgate._outbox.entries import Intent
from toolgate.errors import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ConfigurationError,
    GatewayProtocolError,
    GatewayUnavailable,
    GuardError,
)

__all__ = [
    "MAX_EDITS",
    "PollSchedule",
    "await_decision",
    "deny",
    "log_pending",
    "resume_approval",
    "unknown_approval",
    "withdraw_unanswered",
]

#: Each approval request in a chain is an approver's edit of the one before.
MAX_EDITS: Final = 32
_MAX_POLL: Final = 30
_MIN_ROUND: Final = 1.0
_MAX_OUTAGE: Final = 300.0
# Seconds for the withdrawal of a request, and for each of the two checks that find out what to withdraw.
_CANCEL_TIMEOUT: Final = 2.0
_CHECK_TIMEOUT: Final = 1.0

_Approved = Generator[Effect, Any, str | None]


class PollSchedule:
    """When a call that waits for an approver reads the approval request again.

    Args:
        hold_timeout: Seconds to wait in all; None waits as long as the gateway responds now and then.
        clock: Monotonic seconds.
    """

    def __init__(self, hold_timeout: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hold_timeout = hold_timeout
        # From the first poll on, and once for the whole call, also when it requires a second approval.
        self._deadline: float | None = None
        self._polled_at = 0.0
        self._unavailable_since: float | None = None
        self._polled_last = False

    def next_poll(self) -> int | None:
        """Return how many seconds the gateway may take for its next response; None when the time is over."""
        self._polled_at = self._clock()
        if self._hold_timeout is None:
            return _MAX_POLL
        if self._deadline is None:
            self._deadline = self._polled_at + self._hold_timeout
        left = self._deadline - self._polled_at
        if left > 0:
            return int(min(_MAX_POLL, left))
        if self._polled_last or self._unavailable_since is not None:
            return None
        # A decision made during the last pause counts; an unavailable gateway is not polled again.
        self._polled_last = True
        return 0

    def responded(self) -> None:
        """Note that the gateway responded: an outage is over."""
        self._unavailable_since = None

    def pause(self) -> float:
        """Return the seconds to pause before the next poll."""
        # A gateway or proxy that does not hold a long poll must not be polled without a pause.
        rest = _MIN_ROUND - (self._clock() - self._polled_at)
        if self._deadline is not None:
            rest = min(rest, self._deadline - self._clock())
        return max(0.0, rest)

    def pause_after(self, error: GatewayUnavailable) -> float:
        """Return the seconds to pause after a failed poll.

        Raises:
            GatewayUnavailable: `error`, if no `hold_timeout` is set and the outage lasts 300 s.
        """
        if self._unavailable_since is None:
            self._unavailable_since = self._polled_at
        if self._deadline is None and self._clock() - self._unavailable_since >= _MAX_OUTAGE:
            raise error
        return self.pause()


def await_decision(call: Call, reason: str | None) -> _Approved:
    """Do what `on_hold` says with a call that requires an approval.

    Returns:
        The approval to check the call with, or None for a new request.

    Raises:
        GuardError: The call may not run.
    """
    while True:
        word = yield from _on_hold(call, reason)
        if word == "raise" and call.who.call_id is None:
            raise call.pending_error(reason)
        # A call with an id may be repeated, and an approver may have decided in the meantime.
        approval_id, approval = yield from _latest(call, waits=word == "wait")
        if approval is not None and approval.status != "pending":
            return (yield from _apply(call, approval_id, approval))
        if word != "check":
            # With the first id of the chain: from there a later call can follow all edits.
            raise call.pending_error(reason)


def resume_approval(call: Call, resumes: str) -> _Approved:
    """Continue the approval request `resumes`; returns and raises as `await_decision`."""
    call.approval_id = resumes
    approval_id = resumes
    approval = yield from _read(call, approval_id)
    if approval is not None:
        yield from _ensure_same_call(call, approval)
        approval_id, approval = yield from _latest(call, waits=False, first=approval)
    if approval is None:
        raise call.pending_error(None)
    if approval.status != "pending":
        return (yield from _apply(call, approval_id, approval))
    reason = "the approval request is still pending"
    yield from log_pending(call, reason)
    return (yield from await_decision(call, reason))


def log_pending(call: Call, reason: str | None) -> Flow:
    """Log that the call requires an approval."""
    if call.on_hold != "wait" or call.approval_id is None:
        yield call.entry("pending", {"reason": clip(reason or "")})
        return
    # From here on the call waits: if it is interrupted while it logs, its request is withdrawn too.
    call.pending.begin(call.approval_id)
    try:
        yield call.entry("pending", {"reason": clip(reason or "")})
    except (Interrupted, KeyboardInterrupt):
        yield from _withdraw(call, call.approval_id)
        raise


def deny(
    call: Call,
    reason: str | None,
    kind: type[ActionDenied] = ActionDenied,
    *,
    intent: Intent | None = None,
) -> Generator[Effect, Any, ActionDenied]:
    """Log that the call is denied, and return the error to raise."""
    error = call.denial(reason, kind)
    yield call.denied_entry(error.reason, intent)
    return error


def withdraw_unanswered(call: Call, check: Check) -> Flow:
    """Withdraw the approval request that an interrupted check may have created.

    A dry run comes first: an approved request would be consumed by a second check. Sent again with its key, the check
    then returns the request that it created, or creates the one that is withdrawn.
    """
    dry_run = Check(check.action, check.who, check.context, dry_run=True)
    try:
        seen = cast("Decision", (yield SendCheck(dry_run, _CHECK_TIMEOUT)))
        if not seen.held:
            return
        decision = cast("Decision", (yield SendCheck(check, _CHECK_TIMEOUT)))
    except GuardError as error:
        call.log("cancel_failed", "unknown", reason=str(error), level=logging.WARNING)
        return
    if decision.held and decision.approval_id is not None:
        call.pending.begin(decision.approval_id)
        if call.pending.end():
            yield from _cancel(call, decision.approval_id)


def unknown_approval(approval_id: str, error: GatewayProtocolError, source: str) -> ConfigurationError | None:
    """Return the error to raise if the gateway responded that the approval request does not exist."""
    if error.status != HTTPStatus.NOT_FOUND:
        return None
    return ConfigurationError(
        f"approval {approval_id!r} is not known to the gateway, or not this key's; "
        f"{source} the approval_id of an ApprovalPending of this agent"
    )


def _on_hold(call: Call, reason: str | None) -> Generator[Effect, Any, OnHoldWord]:
    if not isinstance(call.on_hold, str):
        return cast("OnHoldWord", (yield AskCaller(call.pending_error(reason))))
    return "wait" if call.on_hold == "wait" else "raise"


def _latest(
    call: Call, *, waits: bool, first: Approval | None = None
) -> Generator[Effect, Any, tuple[str, Approval | None]]:
    """Return the last approval request of the chain of edits, and its id."""
    approval_id, approval, seen = call.approval_id or "", first, set[str]()
    while True:
        if approval is None:
            read = _wait if waits else _read
            approval = yield from read(call, approval_id)
        if approval is None or approval.status != "replaced" or approval.replaced_by is None:
            return approval_id, approval
        seen.add(approval_id)
        if approval.replaced_by in seen or len(seen) >= MAX_EDITS:
            raise (yield from deny(call, "the approval request was replaced by another without end"))
        approval_id, approval = approval.replaced_by, None


def _read(call: Call, approval_id: str) -> Generator[Effect, Any, Approval | None]:
    """Read an approval request once; a call that waits outlasts an outage meanwhile."""
    try:
        if call.on_hold == "wait":
            return (yield from _poll(call, approval_id, once=True))
        return _logged(call, approval_id, (yield GetApproval(approval_id)))
    except GatewayUnavailable:
        if call.resumes is None and call.who.call_id is not None:
            # Repeated later, the call reads it again.
            return None
        raise
    except GatewayProtocolError as error:
        unknown = unknown_approval(approval_id, error, "resume with")
        if approval_id == call.resumes and unknown is not None:
            raise unknown from error
        raise


def _wait(call: Call, approval_id: str) -> Generator[Effect, Any, Approval | None]:
    """Poll until an approver has decided or the time is over; withdraw the request if the call is interrupted."""
    call.log("waiting", "held", approval_id=approval_id)
    call.pending.begin(approval_id)
    try:
        approval = yield from _poll(call, approval_id)
    except (Interrupted, KeyboardInterrupt):
        yield from _withdraw(call, approval_id)
        raise
    except Exception:
        call.pending.end()
        raise
    call.pending.end()
    return approval


def _poll(call: Call, approval_id: str, *, once: bool = False) -> Generator[Effect, Any, Approval | None]:
    schedule = call.schedule = call.schedule or PollSchedule(call.hold_timeout, call.clock)
    while (seconds := schedule.next_poll()) is not None:
        try:
            approval = yield GetApproval(approval_id, 0 if once else seconds, polls=not once)
        except GatewayUnavailable as error:
            yield Sleep(schedule.pause_after(error))
            continue
        schedule.responded()
        if once or approval.status != "pending":
            return _logged(call, approval_id, approval)
        yield Sleep(schedule.pause())
    return None


def _logged(call: Call, approval_id: str, approval: Approval) -> Approval:
    if approval.status == "approved":
        call.log("approved", "approved", reason=approval.note, approval_id=approval_id)
    elif approval.status == "replaced":
        call.log("edited", "replaced", reason=approval.note, approval_id=approval_id)
    return approval


def _withdraw(call: Call, approval_id: str) -> Flow:
    """Withdraw a request unless another call of this process waits for it."""
    if call.pending.end():
        yield Cleanup(partial(_cancel, call, approval_id))


def _cancel(call: Call, approval_id: str) -> Flow:
    try:
        yield CancelApproval(approval_id, _CANCEL_TIMEOUT)
    except GuardError as error:
        # 409: the first of two attempts arrived, although its response did not.
        if getattr(error, "status", None) != HTTPStatus.CONFLICT:
            call.log(
                "cancel_failed", "held", reason=str(error), approval_id=approval_id, level=logging.WARNING
            )
            return
    call.log("cancelled", "cancelled", approval_id=approval_id)


def _ensure_same_call(call: Call, approval: Approval) -> Flow:
    """Refuse to continue the approval request of another call."""
    for name, theirs, ours in (
        ("action", approval.action, call.action),
        ("agent", approval.agent_id, call.who.agent_id),
    ):
        if theirs is not None and theirs != ours:
            raise ConfigurationError(
                f"approval {call.approval_id!r} is of {name} {theirs!r} and not of {ours!r}; "
                "resume the call it was asked for"
            )
    if approval.context is None:
        return
    field = first_difference(call.captured.context, approval.context)
    if field is not None:
        raise (yield from deny(call, clip(f"the approval was asked for with another {field!r}")))


def _apply(call: Call, approval_id: str, approval: Approval) -> _Approved:
    """Continue with a request that is no longer pending."""
    edited = approval_id != call.approval_id
    # From here on log entries and errors contain the last request of the chain.
    call.approval_id = approval_id
    if approval.status == "consumed" and call.resumes is not None:
        raise (yield from deny(call, "the approval has been used already"))
    if approval.status in {"approved", "consumed"}:
        if edited:
            yield from _apply_edit(call, approval.approved_context)
            return approval_id
        return (yield from _recapture(call, approval_id))
    if approval.status == "denied":
        raise (yield from deny(call, approval.note or "the approval request was declined", ApprovalDenied))
    if approval.status == "expired":
        # The log has no status for an expiry; the reason says that no approver refused.
        reason = "the approval request expired before it was decided or used"
        yield call.denied_entry(reason)
        raise ApprovalExpired(
            action=call.action, agent_id=call.who.agent_id, approval_id=approval_id, reason=reason
        )
    raise (yield from deny(call, approval.note or f"the approval request is {approval.status}"))


def _recapture(call: Call, approval_id: str) -> _Approved:
    """Read the arguments again: an approval covers exactly the arguments that were shown."""
    before = call.captured
    if call.arguments is not None:
        call.captured = call.arguments.capture()
    # As text: in Python True equals 1, in JSON it does not.
    same = dumps(call.captured.context, canonical=True) == dumps(before.context, canonical=True)
    if not same and call.resumes is not None:
        call.captured = before
        raise (yield from deny(call, "the arguments changed while the approval was waited for"))
    return approval_id if same else None


def _apply_edit(call: Call, approved: dict[str, Json] | None) -> Flow:
    """Put the approver's edit into the arguments, and deny the call if the result is not exactly what was approved."""
    if approved is None:
        raise (yield from deny(call, "the approval was edited, and the gateway does not say how"))
    if call.arguments is None:
        raise (yield from deny(call, "the approver's edit cannot be applied: the tool has begun"))
    try:
        problem = call.arguments.edit(call.captured.context, approved)
    except Exception as error:  # noqa: BLE001 - other people's classes convert the values; the tool does not run
        problem = f"{type(error).__name__} while converting"
    if problem is not None:
        raise (yield from deny(call, clip(f"the approver's edit cannot be applied: {problem}")))
    captured = call.arguments.capture()
    field = first_difference(captured.context, approved)
    if field is not None:
        problem = f"{field!r} would not be what was approved"
        raise (yield from deny(call, clip(f"the approver's edit cannot be applied: {problem}")))
    call.captured = captured
    call.edited = True
