"""Asking the gateway and the reference the same, and comparing what they say."""

import json
from collections.abc import Callable
from dataclasses import replace

import httpx
from hypothesis import strategies as st

from support.inside import TICK
from support.machine.driver import Driver, told
from support.machine.wording import worded_again
from support.reference.checking import Outcome, Question, check, keep_answer
from support.reference.facts import Approval, Tenant
from toolgate_service.checks.decide import Denied, Step
from toolgate_service.checks.explain import Explanation

APPROVED = list(Step).index(Step.APPROVED)


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
        """Ask both, compare, and return what was rightly answered; and what was explained before is answered now."""
        explained = self._explained(tenant, question)
        answer = self.call("POST", tenant, "/sdk/check", question.body, question.idempotency_key)
        outcome = check(self.world, tenant, question, self.now())
        self.counts.checks[outcome.kind] += 1
        if outcome.why:
            self.counts.reasons[outcome.why] += 1
        compare(answer, outcome, lambda approval_id: self.world.approval(tenant, approval_id) is None)
        if outcome.decision_id is None:
            # An attempt that is repeated is told what it was told before: that is no question of what holds now.
            self._as_explained(explained, answer)
        if outcome.approval is not None:
            self.questions.setdefault(outcome.approval.id, (tenant, replace(question, idempotency_key=None)))
        if outcome.used is not None:
            self.counts.used += 1
            self._count_use(tenant, outcome.used)
        for one in outcome.reserved:
            one.decision_id = answer.headers["X-Decision-ID"]
            self.world.reservations.append(one)
            self.counts.seen["reserved"] += 1
        if outcome.used is not None or outcome.reserved:
            keep_answer(self.world, tenant, question, outcome, answer.headers["X-Decision-ID"], self.now())
        if outcome.decision_id is not None:
            self.counts.seen["answer repeated"] += 1
        if not question.dry_run:
            self.asked.append((tenant, question))
        return outcome

    def _explained(self, tenant: Tenant, question: Question) -> Explanation:
        # At the moment at which it will be answered.
        self.clock.advance()
        explained = self.gateway.explain(tenant.organization, tenant.environment, question.body)
        self.clock.advance(-TICK)
        return explained

    def _as_explained(self, explained: Explanation, answer: httpx.Response) -> None:
        assert explained.response is not None
        said, given = json.loads(explained.response), answer.json()
        if explained.at == Step.NEW_REQUEST:
            # What is asked anew has an id only once it was asked.
            given["approval_id"] = None
        assert said == given, (explained, answer.text)
        self.counts.explained[explained.at] += 1
        if isinstance(explained.decision, Denied):
            assert explained.summary == f"{given['reason']}."
        order = [list(Step).index(one.step) for one in explained.passed]
        assert order == sorted(order)
        at = list(Step).index(explained.at)
        # If several requests were approved, the first may be invalid and the next one valid. Budgets deny a call that an
        # approval would allow after all other steps.
        last = explained.at == Step.BUDGET
        assert all(place < at or place == at == APPROVED or last for place in order), explained

    def _count_use(self, tenant: Tenant, used: Approval) -> None:
        if used.grant is not None and used.decided_by is None:
            self.counts.seen["used by a grant"] += 1
        if used.replaces is not None:
            self.counts.seen["edited and used"] += 1
        if len(used.voters) > 1:
            self.counts.seen["used with a quorum"] += 1
        if not used.id:
            # A use of a grant is a request that nobody was told of; it is the newest.
            answer = self.manage("GET", tenant, "/api/approvals", agent_id=used.agent_id, limit=1)
            [shown] = answer.json()
            assert self.world.approval(tenant, shown["id"]) is None
            used.id = shown["id"]

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
