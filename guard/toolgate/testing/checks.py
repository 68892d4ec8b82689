"""Checks at the fake gateway: the decision, and the requests for approval behind a held one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import uuid4

from toolgate._capture.jsontext import exact
from toolgate.permitted import Permitted
from toolgate.testing.approvals import Asked, Ledger, Then
from toolgate.testing.clock import LeapingClock
from toolgate.testing.fields import Fields
from toolgate.testing.rules import needs_approval, why_blocked

__all__ = ["Checks", "Question", "Rule", "Verdict"]

_RECENT: Final = 300.0
_MOST_PENDING: Final = 100
_REPEATED: Final = 600.0


@dataclass(frozen=True, slots=True)
class Rule:
    """What the fake gateway says to an action.

    Attributes:
        permitted: What the agents may do; None where it is refused in the test's own words.
        reason: Those words.
        then: What becomes of its requests by itself.
        permission_id: Names the permission: one made again is another.
    """

    permitted: Permitted | None
    reason: str | None = None
    then: Then | None = None
    permission_id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True, slots=True)
class Question:
    """What a check asks."""

    agent_id: str
    action: str
    context: dict[str, Any]
    approval_id: str | None
    call_id: str | None
    run_id: str | None
    dry_run: bool
    reason: str | None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Question:
        """Read a check's body.

        Raises:
            Refusal: 400, something is wrong with it.
        """
        fields = Fields(body)
        agent_id, action, context = fields.text("agent_id"), fields.action(), fields.context()
        approval_id, call_id, run_id = (
            fields.reference(name) for name in ("approval_id", "call_id", "run_id")
        )
        dry_run, reason = fields.flag("dry_run"), fields.description("reason")
        fields.finish()
        return cls(agent_id, action, context or {}, approval_id, call_id, run_id, dry_run, reason)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a check."""

    outcome: Literal["allowed", "blocked", "held"]
    reason: str | None = None
    approval_id: str | None = None
    decision_id: str = field(default_factory=lambda: str(uuid4()))
    let_through: bool = False
    approved_by: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The answer's own headers."""
        said = {"x-decision-id": self.decision_id}
        if self.approved_by is not None:
            said["x-approval-id"] = self.approved_by
        return said | {"x-call-let-through": "true"} if self.let_through else said

    def shown(self) -> dict[str, Any]:
        """The answer as it is sent."""
        return {
            "allowed": self.outcome == "allowed",
            "requires_approval": self.outcome == "held",
            "reason": self.reason,
            "approval_id": self.approval_id,
        }


class Checks:
    """Answers checks.

    Args:
        clock: The gateway's.
        ledger: Its requests for approval.
        agents: Whom it knows; None for whoever asks.
    """

    def __init__(self, clock: LeapingClock, ledger: Ledger, agents: Iterable[str] | None) -> None:
        self._clock = clock
        self._ledger = ledger
        self._agents = None if agents is None else frozenset(agents)
        self._answered: dict[tuple[str, str], tuple[float, str]] = {}
        self.switched_off: set[str] = set()
        self.rules: dict[str, Rule] = {}

    def knows(self, agent_id: str) -> bool:
        """Whether there is such an agent."""
        return self._agents is None or agent_id in self._agents

    def answer(self, question: Question, key: str | None) -> Verdict:
        """Decide; `key` is the attempt's, whose retries are answered alike."""
        rule = self.rules.get(question.action, Rule(None))
        known, active = self.knows(question.agent_id), question.agent_id not in self.switched_off
        reason = why_blocked(
            rule.permitted,
            question.action,
            question.context,
            agent_id=question.agent_id,
            known=known,
            active=active,
        )
        if reason is not None or rule.permitted is None:
            return Verdict("blocked", rule.reason if known and active and rule.reason else reason)
        if not rule.permitted.held and question.approval_id is None:
            return Verdict("allowed")
        attempt = (key, exact(_said(question))) if key is not None else None
        if attempt is not None:
            until, decision_id = self._answered.get(attempt, (0.0, ""))
            if until > self._clock.now():
                return Verdict("allowed", decision_id=decision_id)
        verdict = self._settle(rule, question)
        if attempt is not None and verdict.outcome == "allowed" and not question.dry_run:
            self._answered[attempt] = (self._clock.now() + _REPEATED, verdict.decision_id)
        return verdict

    def _settle(self, rule: Rule, question: Question) -> Verdict:
        equal = self._equal(rule, question)
        if question.approval_id is not None and not equal:
            return Verdict(
                "blocked",
                f"Approval {question.approval_id!r} does not belong to this agent, action and context; "
                "check again without approval_id",
            )
        if rule.permitted is not None and not rule.permitted.held:
            return Verdict("allowed")
        if question.call_id and self._let_through_before(question):
            why = f"Call {question.call_id!r} was already let through once"
            return Verdict("blocked", why, let_through=True)
        for asked in equal:
            if self._ledger.state(asked) == "approved" and _answers(asked, question):
                if not question.dry_run:
                    asked.status, asked.consumed_call_id = "consumed", question.call_id or ""
                    self._ledger.tell(asked)
                return Verdict("allowed", approved_by=asked.approval_id)
        waiting = self._waiting(equal, question)
        held = needs_approval(question.action)
        if waiting is not None:
            return Verdict("held", held, waiting.approval_id)
        if question.approval_id is not None:
            return Verdict("blocked", self._ended(equal[0]))
        refusal = self._denied_call(equal, question) or self._why_not_asked(rule, question)
        if refusal is not None:
            return Verdict("blocked", refusal)
        return Verdict("held", held, None if question.dry_run else self._ask(rule, question))

    def _denied_call(self, equal: list[Asked], question: Question) -> str | None:
        # The denial of a call that has a name does not end with the denial memory.
        for one in equal if question.call_id else ():
            if one.status == "denied":
                return _denied(one)
            if one.rejected:
                return f"Call {question.call_id!r} was rejected in the agent's framework"
        return None

    def _waiting(self, equal: list[Asked], question: Question) -> Asked | None:
        # A call by name that a person changed waits for what became of that.
        named = bool(question.call_id) and question.approval_id is None
        states = ("replaced", "pending") if named else ("pending",)
        return next((one for state in states for one in equal if self._ledger.state(one) == state), None)

    def _equal(self, rule: Rule, question: Question) -> list[Asked]:
        bound_to = _bound_to(rule, question)
        equal = [
            asked
            for asked in self._ledger.newest_first()
            if asked.bound_to == bound_to
            and (asked.call_id == (question.call_id or "") or asked.approval_id == question.approval_id)
        ]
        if question.approval_id is not None:
            return [asked for asked in equal if asked.approval_id == question.approval_id]
        return equal

    def _let_through_before(self, question: Question) -> bool:
        return any(
            asked.status == "consumed" and question.call_id in {asked.call_id, asked.consumed_call_id}
            for asked in self._ledger.newest_first()
            if (asked.agent_id, asked.action, asked.run_id)
            == (question.agent_id, question.action, question.run_id or "")
        )

    def _why_not_asked(self, rule: Rule, question: Question) -> str | None:
        bound_to, now = _bound_to(rule, question), self._clock.now()
        for asked in self._ledger.newest_first():
            if (
                asked.status == "denied"
                and asked.bound_to == bound_to
                and (asked.decided or 0.0) > now - _RECENT
            ):
                return _denied(asked)
        pending = sum(asked.agent_id == question.agent_id for asked in self._ledger.pending())
        if pending < _MOST_PENDING:
            return None
        return (
            f"{_MOST_PENDING} requests of this agent wait for approval, and no more may "
            "(TOOLGATE_PENDING_PER_AGENT); have some of them decided or cancelled, then check again"
        )

    def _ask(self, rule: Rule, question: Question) -> str:
        asked = self._ledger.new(
            lambda created, expires: Asked(
                agent_id=question.agent_id,
                action=question.action,
                context=question.context,
                permission_id=rule.permission_id,
                run_id=question.run_id or "",
                call_id=question.call_id or "",
                reason=question.reason,
                created=created,
                expires=expires,
                then=rule.then,
            )
        )
        return asked.approval_id

    def _ended(self, asked: Asked) -> str:
        state = self._ledger.state(asked)
        if state == "denied":
            return _denied(asked)
        return f"Approval {asked.approval_id!r} is {state}; check again without approval_id"


def _denied(asked: Asked) -> str:
    return f"Denied by a person: {asked.note}" if asked.note else "Denied by a person"


def _answers(asked: Asked, question: Question) -> bool:
    # What a person made of a call is no answer to whoever happens to ask for just that.
    return asked.replaces is None or question.approval_id == asked.approval_id


def _bound_to(rule: Rule, question: Question) -> tuple[str, ...]:
    context = exact(question.context)
    return (question.agent_id, question.action, context, rule.permission_id, question.run_id or "")


def _said(question: Question) -> list[Any]:
    said = (question.agent_id, question.action, question.context, question.approval_id)
    return [*said, question.call_id, question.run_id]
