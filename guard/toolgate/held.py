"""What becomes of a held call: a person decides, edits, or lets it lie. No I/O here either."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any, Final, cast

from toolgate._capture.context import Captured
from toolgate._capture.facts import clip
from toolgate._capture.jsontext import Json, dumps, first_difference
from toolgate.calls import Call, expired, refused
from toolgate.errors import ActionDenied, ApprovalDenied, ConfigurationError
from toolgate.steps import Approval, AskCaller, AwaitApproval, Edit, Inapplicable, Look, Recapture, Step

__all__ = ["LONGEST_CHAIN", "continued", "decided"]

# Each link is a person's edit of the one before.
LONGEST_CHAIN: Final = 32
_USED: Final = "the approval has been used already"

Passed = Generator[Step, Any, tuple[Call, str | None]]


def decided(call: Call, reason: str | None) -> Passed:
    """Do with a held call what its `on_hold` says.

    Returns:
        The call as it is to be checked, and the approval to check it with; without one it is a new request.

    Raises:
        GuardError: Whatever else came of it.
    """
    while True:
        answer = call.on_hold if isinstance(call.on_hold, str) else (yield AskCaller(call.pending(reason)))
        if answer == "raise" and call.who.call_id is None:
            raise call.pending(reason)
        # A call by name may have been here before, and a person may have changed it since.
        waits = answer == "wait"
        approval_id, approval = yield from _newest(call, waits=waits)
        if approval is not None and approval.status != "pending":
            return (yield from _settled(call, approval_id, approval))
        if answer != "check":
            # Named by the first id: by that one a later call can follow all edits.
            raise call.pending(reason)


def continued(call: Call) -> Passed:
    """Take up the approval `call.resumes`; as `decided`."""
    call = replace(call, approval_id=call.resumes)
    approval_id = call.approval_id or ""
    approval = cast("Approval | None", (yield _look(call, approval_id)))
    if approval is not None:
        yield from _belongs(call, approval)
        approval_id, approval = yield from _newest(call, waits=False, first=approval)
    if approval is None:
        raise call.pending(None)
    if approval.status != "pending":
        return (yield from _settled(call, approval_id, approval))
    reason = "the approval request still waits for a person"
    yield call.record("pending", {"reason": reason}, waits=call.on_hold == "wait")
    return (yield from decided(call, reason))


def _look(call: Call, approval_id: str) -> Look:
    named = approval_id == call.resumes
    return Look(
        call.action,
        call.who,
        approval_id,
        resumed=named,
        patient=call.on_hold == "wait",
        forgiving=call.resumes is None and call.who.call_id is not None,
    )


def _belongs(call: Call, approval: Approval) -> Generator[Step, Any, None]:
    """Refuse to continue another call's approval: an edit of that one is none of this one."""
    for what, theirs, ours in (
        ("action", approval.action, call.action),
        ("agent", approval.agent_id, call.who.agent_id),
    ):
        if theirs is not None and theirs != ours:
            raise ConfigurationError(
                f"approval {call.approval_id!r} is of {what} {theirs!r} and not of {ours!r}; "
                "resume the call it was asked for"
            )
    if approval.context is None:
        return
    field = first_difference(call.captured.context, approval.context)
    if field is not None:
        raise (yield from refused(call, clip(f"the approval was asked for with another {field!r}")))


def _newest(
    call: Call, *, waits: bool, first: Approval | None = None
) -> Generator[Step, Any, tuple[str, Approval | None]]:
    """The approval that stands for the call's own after all edits, and its id."""
    approval_id, approval, seen = call.approval_id or "", first, set[str]()
    while True:
        if approval is None:
            step = AwaitApproval(call.action, call.who, approval_id) if waits else _look(call, approval_id)
            approval = cast("Approval | None", (yield step))
        if approval is None or approval.status != "replaced" or approval.replaced_by is None:
            return approval_id, approval
        seen.add(approval_id)
        if approval.replaced_by in seen or len(seen) >= LONGEST_CHAIN:
            raise (yield from refused(call, "the approval request was replaced by another without end"))
        approval_id, approval = approval.replaced_by, None


def _settled(call: Call, approval_id: str, approval: Approval) -> Passed:
    edited = approval_id != call.approval_id
    # From here on the log entries and errors name what was decided last.
    call = replace(call, approval_id=approval_id)
    if approval.status == "consumed" and call.resumes is not None:
        raise (yield from refused(call, _USED))
    if approval.status in {"approved", "consumed"}:
        if edited:
            return (yield from _edited(call, approval.approved_context)), approval_id
        again = cast("Captured", (yield Recapture()))
        # As text: in Python True equals 1, in a context it does not.
        same = dumps(again.context, canonical=True) == dumps(call.captured.context, canonical=True)
        if not same and call.resumes is not None:
            raise (yield from refused(call, "the arguments changed while the approval was waited for"))
        return replace(call, captured=again), approval_id if same else None
    if approval.status == "denied":
        raise (yield from refused(call, approval.note or "the approval request was declined", ApprovalDenied))
    if approval.status == "expired":
        raise (yield from expired(call))
    raise (
        yield from refused(call, approval.note or f"the approval request is {approval.status}", ActionDenied)
    )


def _edited(call: Call, approved: dict[str, Json] | None) -> Generator[Step, Any, Call]:
    """The call with a person's edit in it; anything but exactly what they approved is refused."""
    if approved is None:
        raise (yield from refused(call, "the approval was edited, and the gateway does not say how"))
    again = cast("Captured | Inapplicable", (yield Edit(call.captured.context, approved)))
    if isinstance(again, Inapplicable):
        raise (yield from refused(call, clip(f"the approver's edit cannot be applied: {again.why}")))
    field = first_difference(again.context, approved)
    if field is not None:
        why = f"{field!r} would not be what was approved"
        raise (yield from refused(call, clip(f"the approver's edit cannot be applied: {why}")))
    return replace(call, captured=again, edited=True)
