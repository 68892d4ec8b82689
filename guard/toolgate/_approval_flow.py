"""Rules for a call that requires an approval: call `on_hold`, poll or withdraw the approval request, apply edits.

An approver who edits the arguments of a call creates a new approval request that replaces the first one; edits can form
a chain of requests. Most functions here are generators, which do no I/O but yield requests for I/O (effects, see
`_effects`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from toolgate._call import Call, OnHoldWord
from toolgate._capture.context import clip
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
from toolgate._models import Approval, Check, Decision, Intent
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

#: Maximum length of a chain of approval requests, in which each request is an approver's edit of the previous one.
MAX_EDITS: Final = 32
# Maximum seconds that the gateway may delay its response to a poll (long poll).
_MAX_POLL: Final = 30
# Minimum seconds between the starts of two polls.
_MIN_ROUND: Final = 1.0
# Seconds without a response from the gateway after which a waiting call fails, if it has no `hold_timeout`.
_MAX_OUTAGE: Final = 300.0
# Deadline, in seconds, for withdrawing an approval request.
_CANCEL_TIMEOUT: Final = 2.0
# Deadline, in seconds, of each of the two checks that `withdraw_unanswered` sends.
_CHECK_TIMEOUT: Final = 1.0

_Approved = Generator[Effect, Any, str | None]


class PollSchedule:
    """Schedule of polls: decides when a call that waits for an approver reads its approval request again.

    Args:
        hold_timeout: Seconds to wait in total; None waits without limit, unless the gateway is unavailable for 300 s.
        clock: Returns monotonic seconds.
    """

    def __init__(self, hold_timeout: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hold_timeout = hold_timeout
        # The deadline is set at the first poll. It does not change if the call later requires a second approval.
        self._deadline: float | None = None
        self._polled_at = 0.0
        self._unavailable_since: float | None = None
        self._polled_last = False

    def next_poll(self) -> int | None:
        """Return the maximum seconds that the next long poll may take, or None if the deadline has passed."""
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
        # One last poll is sent at the deadline, because an approver may have decided since the previous poll. It is
        # omitted if the gateway is unavailable.
        self._polled_last = True
        return 0

    def responded(self) -> None:
        """Record that the gateway has responded, so that it no longer counts as unavailable."""
        self._unavailable_since = None

    def pause(self) -> float:
        """Return the seconds to pause before the next poll."""
        # Some proxies respond to a long poll without delay. Without a pause of at least one second, the call would
        # then poll continuously.
        rest = _MIN_ROUND - (self._clock() - self._polled_at)
        if self._deadline is not None:
            rest = min(rest, self._deadline - self._clock())
        return max(0.0, rest)

    def pause_after(self, error: GatewayUnavailable) -> float:
        """Return the seconds to pause after a failed poll.

        Raises:
            GatewayUnavailable: No `hold_timeout` is set, and the gateway has been unavailable for 300 s.
        """
        if self._unavailable_since is None:
            self._unavailable_since = self._polled_at
        if self._deadline is None and self._clock() - self._unavailable_since >= _MAX_OUTAGE:
            raise error
        return self.pause()


def await_decision(call: Call, reason: str | None) -> _Approved:
    """Wait for the approver or raise `ApprovalPending`, depending on `on_hold`.

    Returns:
        Id of the approval that the next check must use. None if the next check may create a new approval request.

    Raises:
        GuardError: The call is pending, rejected, expired or denied; its tool must not run.
    """
    while True:
        word = yield from _on_hold(call, reason)
        if word == "raise" and call.who.call_id is None:
            raise call.pending_error(reason)
        # A call with a call id may be a repetition by the agent framework, and an approver may have decided since the
        # first attempt. The approval request is therefore read before the call raises `ApprovalPending`.
        approval_id, approval = yield from _latest(call, waits=word == "wait")
        if approval is not None and approval.status != "pending":
            return (yield from _apply(call, approval_id, approval))
        if word != "check":
            # The error contains the id of the first approval request. An approver's edit replaces a request by a new
            # one, and a later call can follow this chain from the first request to the last.
            raise call.pending_error(reason)


def resume_approval(call: Call, resumes: str) -> _Approved:
    """Read the approval request that a resumed call continues (`call.resumes`), and wait for the approver's decision.

    The return value and the errors are the same as for `await_decision`.
    """
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
    """Write the log entry (status `pending`) of a call that requires an approval."""
    if call.on_hold != "wait" or call.approval_id is None:
        yield call.entry("pending", {"reason": clip(reason or "")})
        return
    # The call is registered as waiting before the entry is written. If the write is interrupted, the approval request
    # can then be withdrawn.
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
    reason_code: str | None = None,
) -> Generator[Effect, Any, ActionDenied]:
    """Write a log entry with status `denied`, and return the error that the caller of this function raises."""
    error = call.denial(reason, kind, reason_code)
    yield call.denied_entry(error.reason, intent)
    return error


def withdraw_unanswered(call: Call, check: Check) -> Flow:
    """Withdraw the approval request that an interrupted check may have created.

    The response to the check is lost, so the id of the approval request is unknown. First, a dry run is sent, because a
    second real check would consume the approval if the call is already approved. If the result of the dry run is that
    an approval is required, the check is sent again with the same idempotency key. The gateway then returns the id of
    the request that it created for this key, or creates a new request. This request is withdrawn.
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
    """Return the error to raise if `error` has status 404 (the approval request does not exist), otherwise None."""
    if error.status != HTTPStatus.NOT_FOUND:
        return None
    return ConfigurationError(
        f"the gateway has no approval request {approval_id!r} that this API key may use; {source} the "
        "approval_id of an ApprovalPending error of this agent"
    )


def _on_hold(call: Call, reason: str | None) -> Generator[Effect, Any, OnHoldWord]:
    if not isinstance(call.on_hold, str):
        return cast("OnHoldWord", (yield AskCaller(call.pending_error(reason))))
    return "wait" if call.on_hold == "wait" else "raise"


def _latest(
    call: Call, *, waits: bool, first: Approval | None = None
) -> Generator[Effect, Any, tuple[str, Approval | None]]:
    """Return the id and the state of the last request in the chain of requests that approvers' edits created.

    The state is None if the gateway is unavailable, or if no approver has decided before the deadline.
    """
    approval_id, approval, seen = call.approval_id or "", first, set[str]()
    while True:
        if approval is None:
            read = _wait if waits else _read
            approval = yield from read(call, approval_id)
        if approval is None or approval.status != "replaced" or approval.replaced_by is None:
            return approval_id, approval
        seen.add(approval_id)
        if approval.replaced_by in seen or len(seen) >= MAX_EDITS:
            raise (
                yield from deny(
                    call,
                    (
                        "the gateway returned a cycle, or a too long chain, of approval requests that replace each other"
                    ),
                )
            )
        approval_id, approval = approval.replaced_by, None


def _read(call: Call, approval_id: str) -> Generator[Effect, Any, Approval | None]:
    """Read an approval request once; with `on_hold="wait"`, retry while the gateway is unavailable."""
    try:
        if call.on_hold == "wait":
            return (yield from _poll(call, approval_id, once=True))
        return _logged(call, approval_id, (yield GetApproval(approval_id)))
    except GatewayUnavailable:
        if call.resumes is None and call.who.call_id is not None:
            # The return value None makes the call raise `ApprovalPending` instead of `GatewayUnavailable`. The agent
            # framework can then repeat the call with the same call id, and the repetition reads the request again.
            return None
        raise
    except GatewayProtocolError as error:
        unknown = unknown_approval(approval_id, error, "resume with")
        if approval_id == call.resumes and unknown is not None:
            raise unknown from error
        raise


def _wait(call: Call, approval_id: str) -> Generator[Effect, Any, Approval | None]:
    """Poll until an approver decides or the deadline passes; withdraw the request if the call is interrupted."""
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
    """Withdraw the approval request of an interrupted call, unless another call of this process waits for it too."""
    if call.pending.end():
        yield Cleanup(partial(_cancel, call, approval_id))


def _cancel(call: Call, approval_id: str) -> Flow:
    try:
        yield CancelApproval(approval_id, _CANCEL_TIMEOUT)
    except GuardError as error:
        # Status 409 means that the approval request is already withdrawn: an earlier attempt reached the gateway, but
        # its response was lost.
        if getattr(error, "status", None) != HTTPStatus.CONFLICT:
            call.log(
                "cancel_failed", "held", reason=str(error), approval_id=approval_id, level=logging.WARNING
            )
            return
    call.log("cancelled", "cancelled", approval_id=approval_id)


def _ensure_same_call(call: Call, approval: Approval) -> Flow:
    """Raise an error if the approval request belongs to a call with another action, agent or arguments."""
    for name, theirs, ours in (
        ("action", approval.action, call.action),
        ("agent", approval.agent_id, call.who.agent_id),
    ):
        if theirs is not None and theirs != ours:
            raise ConfigurationError(
                f"approval request {call.approval_id!r} belongs to the {name} {theirs!r}, not to {ours!r}; "
                "resume the tool call for which the request was created"
            )
    if approval.context is None:
        return
    field = first_difference(call.captured.context, approval.context)
    if field is not None:
        raise (
            yield from deny(
                call, clip(f"the approval was requested for a call with a different value of {field!r}")
            )
        )


def _apply(call: Call, approval_id: str, approval: Approval) -> _Approved:
    """Evaluate the approver's decision, and return the id of the approval that the next check must use.

    Return None if the next check may create a new request. Raise an error if the request was rejected or has expired,
    or if a resumed call's approval is already consumed.
    """
    edited = approval_id != call.approval_id
    # From here on, log entries and errors contain the id of the last request in the chain of edits.
    call.approval_id = approval_id
    if approval.status == "consumed" and call.resumes is not None:
        raise (yield from deny(call, "the approval has already been used"))
    if approval.status in {"approved", "consumed"}:
        if edited:
            yield from _apply_edit(call, approval.approved_context)
            return approval_id
        return (yield from _recapture(call, approval_id))
    if approval.status == "denied":
        raise (yield from deny(call, approval.note or "the approval request was rejected", ApprovalDenied))
    if approval.status == "expired":
        # Log entries have no status for an expired request. The entry therefore has the status `denied`, and its reason
        # states that the request expired.
        reason = "the approval request expired before it was decided or used"
        yield call.denied_entry(reason)
        raise ApprovalExpired(
            action=call.action, agent_id=call.who.agent_id, approval_id=approval_id, reason=reason
        )
    raise (yield from deny(call, approval.note or f"the approval request is {approval.status}"))


def _recapture(call: Call, approval_id: str) -> _Approved:
    """Copy the arguments again, and return `approval_id` if they equal the approved arguments.

    If they have changed, return None, because the next check needs a new approval. A resumed call is denied instead,
    because it may use only the approval that it continues.
    """
    before = call.captured
    if call.arguments is not None:
        call.captured = call.arguments.capture()
    # The arguments are compared as JSON text, because Python treats True and 1 as equal.
    same = dumps(call.captured.context, canonical=True) == dumps(before.context, canonical=True)
    if not same and call.resumes is not None:
        call.captured = before
        raise (yield from deny(call, "the arguments changed while the call waited for approval"))
    return approval_id if same else None


def _apply_edit(call: Call, approved: dict[str, Json] | None) -> Flow:
    """Apply the approver's edit to the arguments; deny the call unless the result is exactly what was approved."""
    if approved is None:
        raise (
            yield from deny(
                call,
                "the approver edited the arguments, but the gateway's response does not contain the new values",
            )
        )
    if call.arguments is None:
        raise (
            yield from deny(
                call, "the approver's edit cannot be applied, because the tool has already begun to run"
            )
        )
    try:
        problem = call.arguments.edit(call.captured.context, approved)
    except Exception as error:  # noqa: BLE001 - the application's classes convert the values, and may raise anything
        problem = f"the new value cannot be converted ({type(error).__name__})"
    if problem is not None:
        raise (yield from deny(call, clip(f"the approver's edit cannot be applied: {problem}")))
    captured = call.arguments.capture()
    field = first_difference(captured.context, approved)
    if field is not None:
        problem = f"{field!r} would have a different value than the approved one"
        raise (yield from deny(call, clip(f"the approver's edit cannot be applied: {problem}")))
    call.captured = captured
    call.edited = True
