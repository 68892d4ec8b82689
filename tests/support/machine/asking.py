"""Asking the gateway and the reference the same, and comparing what they say."""

from collections.abc import Callable
from dataclasses import replace

import httpx
from hypothesis import strategies as st

from support.machine.driver import Driver, told
from support.machine.wording import worded_again
from support.reference.checking import Outcome, Question, check, keep_answer
from support.reference.facts import Tenant


class Asking(Driver):
    """The machine without its rules, able to ask.

    Attributes:
        asked: what was asked, by whom.
        questions: the check that made each request, by the request's id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Tenant, Question]] = []
        self.questions: dict[str, tuple[Tenant, Question]] = {}

    def put(self, tenant: Tenant, question: Question) -> Outcome:
        """Ask both, compare, and return what was rightly answered."""
        answer = self.call("POST", tenant, "/sdk/check", question.body, question.idempotency_key)
        outcome = check(self.world, tenant, question, self.now())
        self.counts.checks[outcome.kind] += 1
        if outcome.why:
            self.counts.reasons[outcome.why] += 1
        compare(answer, outcome, lambda approval_id: self.world.approval(tenant, approval_id) is None)
        if outcome.approval is not None:
            self.questions.setdefault(outcome.approval.id, (tenant, replace(question, idempotency_key=None)))
        if outcome.used is not None:
            self.counts.used += 1
            keep_answer(self.world, tenant, question, answer.headers["X-Decision-ID"], self.now())
        if outcome.decision_id is not None:
            self.counts.seen["answer repeated"] += 1
        if not question.dry_run:
            self.asked.append((tenant, question))
        return outcome

    def in_other_words(self, data: st.DataObject, question: Question) -> Question:
        """Return a question that means the same, as a new attempt."""
        context = data.draw(worded_again(question.context), label="context")
        return replace(question, context=context, idempotency_key=None)


def compare(answer: httpx.Response, outcome: Outcome, is_new: Callable[[str], bool]) -> None:
    """Compare an answer with what should be answered; a new request is given the id that the gateway gave it."""
    told_ = told(answer)
    assert isinstance(told_, dict)
    allowed, held = outcome.kind == "allowed", outcome.kind == "held"
    assert (told_["allowed"], told_["requires_approval"]) == (allowed, held), (told_, outcome)
    reason = told_["reason"]
    if allowed:
        assert reason is None
    else:
        assert outcome.why in reason.lower(), (reason, outcome)
        assert all(word in reason for word in outcome.named), (reason, outcome)
    if outcome.approval is not None and not outcome.approval.id:
        assert is_new(told_["approval_id"])
        outcome.approval.id = told_["approval_id"]
    assert told_["approval_id"] == (outcome.approval.id if outcome.approval else None), (told_, outcome)
    decision_id = answer.headers["X-Decision-ID"]
    assert outcome.decision_id in {None, decision_id}
