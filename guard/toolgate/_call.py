"""State of one guarded call, and the log entries that describe it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from toolgate._capture.context import Captured
from toolgate._capture.facts import clip, with_facts
from toolgate._capture.jsontext import Json, dumps
from toolgate._effects import WriteEntry, WriteIntent
from toolgate._identity import Identity, current_reason
from toolgate._logging import log_event
from toolgate._models import Check, LogStatus
from toolgate._outbox.entries import Entry, Intent, new_entry
from toolgate._process_state import DeniedActions, PendingApproval
from toolgate.errors import ActionDenied, ApprovalPending

if TYPE_CHECKING:
    from toolgate._approval_flow import PollSchedule

__all__ = ["Arguments", "Call", "OnHold", "OnHoldWord", "log_entry"]

OnHoldWord: TypeAlias = Literal["raise", "wait", "check"]
OnHoldFunction: TypeAlias = Callable[
    [ApprovalPending],
    Literal["pause", "raise", "wait", "check"]
    | Awaitable[Literal["pause", "raise", "wait", "check"] | None]
    | None,
]
OnHold: TypeAlias = Literal["pause", "raise", "wait"] | OnHoldFunction

_KEY_LENGTH: Final = 32
#: members that differ between two entries of the same call
_CHANGING: Final = frozenset({"decision_id", "occurred_at", "traceparent"})


class Arguments(Protocol):
    """Arguments of a tool call, or the context of an action block."""

    def capture(self) -> Captured:
        """Return them as JSON, with an approver's edit if there was one."""
        ...

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Apply the edit that turns `asked` into `approved`; return why that is impossible, or None."""
        ...

    def difference(self) -> str | None:
        """Return the name of the first argument that changed since the last `capture`, or None."""
        ...

    def discard_edit(self) -> None:
        """Discard the edit."""
        ...


@dataclass(slots=True, eq=False)
class Call:
    """One guarded call: what the gateway decides about, and what is known so far.

    Attributes:
        action: The action.
        who: The agent, its run and the call's id.
        arguments: The arguments; None once the tool has them.
        captured: The arguments as JSON, as they were when the gateway was last asked.
        pending: The approval request that the call waits for.
        clock: Monotonic seconds.
        on_hold: What happens when the call requires an approval.
        hold_timeout: Seconds to wait for an approver; None for no limit.
        resumes: The approval request that the call continues.
        fail_open: Whether it may run when the gateway cannot be reached.
        denied_actions: Actions that do not fail open.
        pauses: Exceptions that the tool raises in order to be called again later.
        verifies: Whether other code could change the arguments while the gateway decides; they are compared then.
        runs_elsewhere: Whether another process runs the tool.
        approval_id: The current approval request.
        decision_id: The last decision.
        edited: Whether `captured` contains an approver's edit.
        no_answer: Why there is no decision, if the call failed open.
        schedule: When the call polls its approval request; None before it does.
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
        """Return the request for a decision, to be covered by that approval or by any."""
        reason = current_reason(self.captured.patterns)
        return Check(self.action, self.who, self.captured.context, approval_id, reason=reason)

    def intent(self) -> WriteIntent:
        """Return the effect that records that the tool is about to run."""
        return WriteIntent(self._entry("pending", {"outcome": "unknown"}, None), self.fail_open)

    def entry(self, status: LogStatus, facts: dict[str, Json], intent: Intent | None = None) -> WriteEntry:
        """Return the effect that logs the call with this status and these facts."""
        reason = facts.get("reason") if status in ("denied", "pending") else None
        log_event(
            "record", self.action, self.who.agent_id, status, reason=reason, approval_id=self.approval_id
        )
        entry = self._entry(status, facts, intent)
        return WriteEntry(_with_stable_key(entry, self.who, status, self.approval_id), intent)

    def context_with(self, facts: Mapping[str, Json]) -> dict[str, Json]:
        """Return the captured context with facts beside it."""
        if self.no_answer is not None:
            facts = {**facts, "fail_open": True, "no_answer": self.no_answer}
        return with_facts(self.captured.context, facts)

    def pending_error(self, reason: str | None) -> ApprovalPending:
        """Return the error to raise while no approver has decided."""
        return ApprovalPending(
            action=self.action,
            agent_id=self.who.agent_id,
            approval_id=self.approval_id or "",
            reason=reason,
        )

    def denial(self, reason: str | None, kind: type[ActionDenied] = ActionDenied) -> ActionDenied:
        """Return the error to raise when the call is denied."""
        return kind(
            action=self.action,
            agent_id=self.who.agent_id,
            reason=reason or "the gateway gave no reason",
            approval_id=self.approval_id,
            decision_id=self.decision_id,
        )

    def denied_entry(self, reason: str, intent: Intent | None = None) -> WriteEntry:
        """Return the effect that logs the call as denied."""
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
        """Write one record about this call to the standard logging."""
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


def log_entry(
    check: Check,
    status: LogStatus,
    facts: Mapping[str, Json],
    *,
    approval_id: str | None = None,
    decision_id: str | None = None,
    reason: str | None = None,
) -> Entry:
    """Return the log entry of a call that this process did not run, and write it to the standard logging.

    Args:
        check: The call.
        status: Its outcome.
        facts: Details beside the arguments.
        approval_id: The approval request it belongs to.
        decision_id: The decision it belongs to.
        reason: Why it is denied or pending, for the standard logging.
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
    return _with_stable_key(entry, who, status, approval_id)


def _with_stable_key(entry: Entry, who: Identity, status: LogStatus, approval_id: str | None) -> Entry:
    """Return the entry so that a repeated call with a call id has one pending or denied entry, not one per repetition."""
    if who.call_id is None or status not in ("denied", "pending"):
        return entry
    parts: list[Json] = [status, entry.body["action"], who.agent_id, who.run_id, who.call_id, approval_id]
    key = hashlib.sha256(dumps(parts).encode()).hexdigest()[:_KEY_LENGTH]
    # The gateway accepts a repeated key only with the same body.
    body = {name: value for name, value in entry.body.items() if name not in _CHANGING}
    return Entry(body, key)
