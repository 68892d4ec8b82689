"""One call of a guarded tool: what the gateway is asked about, and how it ends when it is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolgate._capture.context import Captured
from toolgate._capture.facts import clip, with_facts
from toolgate._capture.jsontext import Json
from toolgate._outbox.entries import Intent
from toolgate.errors import ActionDenied, ApprovalExpired, ApprovalPending
from toolgate.identity import Identity
from toolgate.stated_reason import current_reason
from toolgate.steps import Check, Intend, LogStatus, Record, Refusals, Step

__all__ = ["Call", "Flow", "OnHold", "expired", "refused"]

Flow: TypeAlias = Generator[Step, Any, None]
HoldAnswer: TypeAlias = Literal["raise", "wait", "check"] | None
Holder: TypeAlias = Callable[[ApprovalPending], HoldAnswer | Awaitable[HoldAnswer]]
OnHold: TypeAlias = Literal["raise", "wait"] | Holder


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a guarded tool: what the gateway is asked about and the log entries tell.

    Attributes:
        action: The action.
        who: Who acts.
        captured: Its context.
        on_hold: What to do when it is held.
        resumes: The approval it continues, if it is to begin with one.
        approval_id: The approval it has come to.
        decision_id: The last decision.
        edited: Whether `captured` is a person's edit of it.
        fail_open: Whether it may run where no gateway answers.
        refusals: What was refused before, and so does not fail open.
        unanswered: Why no gateway answered, if it runs all the same.
        pauses: What the tool may raise to be called again.
        verifies: Whether the arguments could change while the gateway is asked, and are compared before the tool runs.
        elsewhere: Whether somebody else runs the tool, and says what became of it.
    """

    action: str
    who: Identity
    captured: Captured
    on_hold: OnHold = "raise"
    resumes: str | None = None
    approval_id: str | None = None
    decision_id: str | None = None
    edited: bool = False
    fail_open: bool = False
    refusals: Refusals | None = field(default=None, compare=False, repr=False)
    unanswered: str | None = None
    pauses: tuple[type[BaseException], ...] = ()
    elsewhere: bool = False
    verifies: bool = False

    def check(self, approval_id: str | None) -> Check:
        """What the gateway is asked, with the approval it has come to, if it is to pass by one."""
        # After a hold, or with an approval, there is an answer already: only a first check may go unanswered.
        first = self.approval_id is None and self.resumes is None and approval_id is None
        forgiving = self.refusals if self.fail_open and first else None
        reason = current_reason(self.captured.patterns)
        return Check(self.action, self.who, self.captured.context, approval_id, forgiving, reason=reason)

    def intend(self) -> Intend:
        """What is written down before the tool runs, and recorded if nothing is heard of the call again."""
        return Intend(self.record("pending", {"outcome": "unknown"}))

    def record(
        self, status: LogStatus, facts: dict[str, Json], *, waits: bool = False, intent: Intent | None = None
    ) -> Record:
        """The log entry of this call with the given status and facts."""
        if self.unanswered is not None:
            facts = {**facts, "fail_open": True, "no_answer": self.unanswered}
        context = with_facts(self.captured.context, facts)
        told = facts.get("reason") if status in ("denied", "pending") else None
        reason = told if isinstance(told, str) else None
        return Record(
            self.action,
            self.who,
            status,
            context,
            self.approval_id,
            self.decision_id,
            reason,
            waits=waits,
            intent=intent,
            may_be_lost=self.fail_open,
        )

    def pending(self, reason: str | None) -> ApprovalPending:
        """What the caller is told while a person has not decided."""
        return ApprovalPending(
            action=self.action,
            agent_id=self.who.agent_id,
            approval_id=self.approval_id or "",
            reason=reason,
        )


def refused(
    call: Call,
    reason: str | None,
    kind: type[ActionDenied] = ActionDenied,
    *,
    intent: Intent | None = None,
) -> Generator[Step, Any, ActionDenied]:
    """Record that the call is refused, and return the error to raise."""
    reason = reason or "the gateway gave no reason"
    yield call.record("denied", {"reason": clip(reason)}, intent=intent)
    return kind(
        action=call.action,
        agent_id=call.who.agent_id,
        reason=reason,
        approval_id=call.approval_id,
        decision_id=call.decision_id,
    )


def expired(call: Call) -> Generator[Step, Any, ApprovalExpired]:
    """Record that the call's approval ran out, and return the error to raise."""
    # The gateway has no status of its own for this (spec §2); the reason says that nobody refused.
    reason = "the approval request expired before it was decided or used"
    yield call.record("denied", {"reason": reason})
    return ApprovalExpired(
        action=call.action, agent_id=call.who.agent_id, approval_id=call.approval_id or "", reason=reason
    )
