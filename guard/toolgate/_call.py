"""State of one guarded call, and its log entries.

An intent is a log entry that is written before the tool runs. The entry with the outcome later replaces it. Facts are
details that are logged in addition to the arguments, such as the duration, the error or the reason of a denial.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from toolgate._capture.context import Captured, clip, with_facts
from toolgate._capture.jsontext import Json, dumps
from toolgate._effects import WriteEntry, WriteIntent
from toolgate._identity import Identity, current_reason
from toolgate._models import Check, Entry, Intent, LogStatus
from toolgate._process_state import DeniedActions, PendingApproval
from toolgate._telemetry import log_event, trace_headers
from toolgate.errors import ActionDenied, ApprovalPending

if TYPE_CHECKING:
    from toolgate._approval_flow import PollSchedule

__all__ = ["Arguments", "Call", "OnHold", "OnHoldWord", "log_entry", "new_entry"]

OnHoldWord: TypeAlias = Literal["raise", "wait", "check"]
OnHoldFunction: TypeAlias = Callable[
    [ApprovalPending],
    Literal["pause", "raise", "wait", "check"]
    | Awaitable[Literal["pause", "raise", "wait", "check"] | None]
    | None,
]
OnHold: TypeAlias = Literal["pause", "raise", "wait"] | OnHoldFunction

_KEY_LENGTH: Final = 32
#: Statuses whose log entries are written again when the framework repeats a call. These entries get a stable
#: idempotency key, so that the gateway stores them once.
_REPEATED: Final = ("denied", "pending")
#: Members of a log entry whose values differ each time the same call is logged; `_with_stable_key` omits them.
_CHANGING: Final = frozenset({"decision_id", "occurred_at", "traceparent"})


class Arguments(Protocol):
    """Interface of the arguments of a tool call, or of the context of an action block."""

    def capture(self) -> Captured:
        """Return a redacted JSON copy of the arguments, with an approver's edit applied."""
        ...

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Apply the approver's edit: the difference between the arguments `asked` (requested) and `approved`.

        Returns:
            None, or the reason why the edit cannot be applied.
        """
        ...

    def difference(self) -> str | None:
        """Return the name of the first argument that has changed since the last `capture`, or None."""
        ...

    def discard_edit(self) -> None:
        """Discard an approver's edit, so that the tool gets the arguments that the caller passed."""
        ...


@dataclass(slots=True, eq=False)
class Call:
    """State of one guarded call: its arguments, its options, and the results of its checks.

    Attributes:
        action: Action of the call, such as `stripe.refund`.
        who: The agent, the agent's run, and the call id.
        arguments: The arguments; None after they have been passed to the tool.
        captured: The redacted JSON copy of the arguments that the next check sends.
        pending: Registration of this call while it waits for an approval request.
        clock: Returns monotonic seconds.
        on_hold: Reaction to a required approval: raise `ApprovalPending`, wait, or call a function that decides.
        hold_timeout: Seconds to wait for an approver; None for no limit.
        resumes: Id of the approval request that a resumed call continues; None for a new call.
        fail_open: True if the tool may run when the gateway cannot be reached.
        denied_actions: Actions that must not run without a decision, even with `fail_open`; None without `fail_open`.
        pauses: Types of exceptions that mean that the tool must be called again later. Such a call is logged as
            `pending` instead of `failed`.
        verifies: True if other code could change the arguments during the check. The SDK then compares them with
            `captured` before the tool runs.
        runs_elsewhere: True if another process runs the tool.
        approval_id: Id of the approval request that the last check returned or used.
        decision_id: Id of the last decision.
        edited: True if `captured` contains an approver's edit.
        no_answer: Error message of the failed check if the tool runs without a decision (`fail_open`); otherwise None.
        schedule: Schedule of the polls of the approval request; None before the first poll.
    """

    action: str
    who: Identity
    arguments: Arguments | None
    captured: Captured
    pending: PendingApproval
    clock: Callable[[], float]
    on_hold: OnHold = "raise"
    hold_timeout: float | None = None
    resumes: str | None = None
    fail_open: bool = False
    denied_actions: DeniedActions | None = None
    pauses: tuple[type[BaseException], ...] = ()
    verifies: bool = False
    runs_elsewhere: bool = False
    approval_id: str | None = None
    decision_id: str | None = None
    edited: bool = False
    no_answer: str | None = None
    schedule: PollSchedule | None = None

    def check(self, approval_id: str | None) -> Check:
        """Return the check to send. If `approval_id` is given, no other approval can allow the call."""
        reason = current_reason(self.captured.patterns)
        return Check(self.action, self.who, self.captured.context, approval_id, reason=reason)

    def intent(self) -> WriteIntent:
        """Return an effect (request for I/O) that writes a log entry with unknown outcome before the tool runs."""
        return WriteIntent(self._entry("pending", {"outcome": "unknown"}, None), self.fail_open)

    def entry(self, status: LogStatus, facts: dict[str, Json], intent: Intent | None = None) -> WriteEntry:
        """Return an effect (request for I/O) that writes the log entry of the call.

        If `intent` (the entry that was stored before the tool ran) is given, the new entry replaces it.
        """
        reason = facts.get("reason") if status in ("denied", "pending") else None
        log_event(
            "record", self.action, self.who.agent_id, status, reason=reason, approval_id=self.approval_id
        )
        entry = self._entry(status, facts, intent)
        if self.who.call_id is not None and status in _REPEATED:
            entry = _with_stable_key(entry, self.who, status, self.approval_id)
        return WriteEntry(entry, intent)

    def context_with(self, facts: Mapping[str, Json]) -> dict[str, Json]:
        """Return the `context` of a log entry: the checked arguments, and facts such as the duration or the error.

        If the tool runs without a decision, the facts also contain `fail_open` and the error of the check.
        """
        if self.no_answer is not None:
            facts = {**facts, "fail_open": True, "no_answer": self.no_answer}
        return with_facts(self.captured.context, facts)

    def pending_error(self, reason: str | None) -> ApprovalPending:
        """Return the `ApprovalPending` error to raise while no approver has decided about the call."""
        return ApprovalPending(
            action=self.action,
            agent_id=self.who.agent_id,
            approval_id=self.approval_id or "",
            reason=reason,
        )

    def denial(
        self, reason: str | None, kind: type[ActionDenied] = ActionDenied, reason_code: str | None = None
    ) -> ActionDenied:
        """Return the error to raise when the call is denied."""
        return kind(
            action=self.action,
            agent_id=self.who.agent_id,
            reason=reason or "the gateway gave no reason",
            approval_id=self.approval_id,
            decision_id=self.decision_id,
            reason_code=reason_code,
        )

    def denied_entry(self, reason: str, intent: Intent | None = None) -> WriteEntry:
        """Return an effect (request for I/O) that logs the call as denied."""
        return self.entry("denied", {"reason": clip(reason)}, intent)

    def log(
        self,
        event: Literal[
            "decision", "waiting", "approved", "edited", "cancelled", "cancel_failed", "fail_open"
        ],
        outcome: str,
        *,
        reason: str | None = None,
        approval_id: str | None = None,
        level: int = logging.INFO,
    ) -> None:
        """Write one record about this call to Python's standard logging."""
        log_event(
            event,
            self.action,
            self.who.agent_id,
            outcome,
            reason=reason,
            approval_id=approval_id,
            level=level,
        )

    def _entry(self, status: LogStatus, facts: dict[str, Json], intent: Intent | None) -> Entry:
        return new_entry(
            action=self.action,
            agent_id=self.who.agent_id,
            status=status,
            context=self.context_with(facts),
            key=None if intent is None else intent.key,
            approval_id=self.approval_id,
            decision_id=self.decision_id,
            run_id=self.who.run_id,
            call_id=self.who.call_id,
        )


def new_entry(
    *,
    action: str,
    agent_id: str,
    status: str,
    context: dict[str, Json],
    key: str | None = None,
    **details: str | None,
) -> Entry:
    """Return a log entry whose `occurred_at` is the current time.

    Args:
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent.
        status: `success`, `failed`, `pending` or `denied`.
        context: The arguments of the call, and details of its outcome such as duration or error.
        key: Idempotency-Key, or None for a new one.
        **details: Further members of the JSON object, such as `approval_id`, `run_id` or `ip_address`. Members whose
            value is None are omitted.
    """
    body: dict[str, Json] = {
        "agent_id": agent_id,
        "action": action,
        "status": status,
        "context": context,
        "occurred_at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    body.update({name: value for name, value in details.items() if value is not None})
    if trace := trace_headers().get("traceparent"):
        # The trace id of the call is stored in the entry, because the thread that sends the entry has no access to it.
        body["traceparent"] = trace
    return Entry(body, key) if key is not None else Entry(body)


def log_entry(
    check: Check,
    status: LogStatus,
    facts: Mapping[str, Json],
    *,
    approval_id: str | None = None,
    decision_id: str | None = None,
    reason: str | None = None,
) -> Entry:
    """Return a log entry for a call that has no `Call` object, and write a record to the standard logging.

    Args:
        check: The agent, action and arguments of the call.
        status: Outcome of the call.
        facts: Details to log in addition to the arguments.
        approval_id: Id of the approval request of the call.
        decision_id: Id of the decision about the call.
        reason: Reason why the call is denied or pending; it is written only to the standard logging.
    """
    who = check.who
    log_event("record", check.action, who.agent_id, status, reason=reason, approval_id=approval_id)
    entry = new_entry(
        action=check.action,
        agent_id=who.agent_id,
        status=status,
        context=with_facts(check.context, facts),
        approval_id=approval_id,
        decision_id=decision_id,
        run_id=who.run_id,
        call_id=who.call_id,
    )
    if who.call_id is not None and status in _REPEATED:
        entry = _with_stable_key(entry, who, status, approval_id)
    return entry


def _with_stable_key(entry: Entry, who: Identity, status: LogStatus, approval_id: str | None) -> Entry:
    """Return the entry with an idempotency key that is the same each time a call with this call id is repeated.

    The gateway then stores one `pending` or `denied` entry for the call, and not one for each repetition.
    """
    parts: list[Json] = [status, entry.body["action"], who.agent_id, who.run_id, who.call_id, approval_id]
    key = hashlib.sha256(dumps(parts).encode()).hexdigest()[:_KEY_LENGTH]
    # The gateway rejects an idempotency key that is sent again with a different body. Members that differ between
    # repetitions are therefore omitted from the entry.
    body = {name: value for name, value in entry.body.items() if name not in _CHANGING}
    return Entry(body, key)
