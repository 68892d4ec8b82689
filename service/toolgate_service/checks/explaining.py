"""What a check would be answered now, and why, step by step; nothing is changed, counted or recorded.

The rules are the check's own: each verdict names the step at which it was reached, and whoever reaches one has passed
those before it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.checks.decide import Blocked, NeedsApproval, Permitted, decide
from toolgate_service.checks.endpoint import answer_of
from toolgate_service.checks.held import Held, LetThrough, settle
from toolgate_service.checks.question import Question, read_question
from toolgate_service.checks.steps import Step
from toolgate_service.errors import ApiError
from toolgate_service.exact_json import Json, plain_number
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import known
from toolgate_service.hotpath.arrivals import requests_a_minute
from toolgate_service.hotpath.rates import Rate
from toolgate_service.hotpath.standing import Standing, standing_in
from toolgate_service.organizations.keys import organization_key
from toolgate_service.permissions.models import Permission
from toolgate_service.settings import Settings


@dataclass(frozen=True, slots=True)
class Passed:
    """A step that was passed, and what was found there, as a sentence."""

    step: Step
    found: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a check would be answered.

    Attributes:
        verdict: the decision, or the refusal of the request.
        at: the step at which it was reached.
        said: what decided there, as a sentence.
        passed: the steps before it, in order.
    """

    verdict: Permitted | Blocked | Held | LetThrough | ApiError
    at: Step
    said: str
    passed: Sequence[Passed]

    @property
    def answer(self) -> bytes | None:
        """The answer's JSON; None for a refusal. What would be asked anew has no approval to name yet."""
        return None if isinstance(self.verdict, ApiError) else answer_of(self.verdict)

    @property
    def by(self) -> str | None:
        """The id of the approval, or of what allows it for a while, that decides; None where there is none."""
        match self.verdict:
            case LetThrough(by=by):
                return by
            case Held(approval_id=approval_id):
                return approval_id
        return None


async def explain(
    gateway: Gateway, organization_id: str, environment: str, body: Mapping[str, Json]
) -> Explanation:
    """Explain what a check by an organization's own key would be answered at this moment.

    Args:
        gateway: the gateway.
        organization_id: who asks.
        environment: where.
        body: of the check.

    Raises:
        FieldErrors: the check would be refused with a 400.
    """
    question = read_question(body)._replace(dry_run=True)
    async with gateway.database.reading() as session:
        key = await organization_key(session, organization_id, environment)
        standing = await standing_in(session, key.digest, question.agent_id, question.action)
        arrived = None if standing is None else (standing, await _rate(gateway, standing))
        try:
            standing, rate = known(arrived)
            if rate.exceeded:
                raise rate.refusal()
        except ApiError as refusal:
            return _refused(refusal, standing, environment)
        verdict = decide(standing, question.agent_id, question.action, question.context)
        steps = _steps(standing, rate, question)
        if isinstance(verdict, Blocked):
            return Explanation(verdict, verdict.at, f"{verdict.reason}.", _until(verdict.at, steps))
        if isinstance(verdict, Permitted) and question.approval_id is None:
            return Explanation(verdict, Step.APPROVAL, _NOBODY, _until(Step.APPROVAL, steps))
        return await _settled(
            session, gateway.settings, key.digest, question, verdict, standing.permission_id, list(steps)
        )


_NOBODY = "No person is asked."


async def _rate(gateway: Gateway, standing: Standing) -> Rate | None:
    if not standing.organization_is_active:
        return None
    limit = requests_a_minute(standing, gateway.plans)
    return await gateway.rates.look(standing.organization_id, f"{standing.environment}/actions", limit)


def _refused(refusal: ApiError, standing: Standing | None, environment: str) -> Explanation:
    at = Step.KEY
    if standing is not None:
        at = Step.RATE if standing.organization_is_active else Step.ORGANIZATION
    first = (
        Passed(Step.KEY, f"The organization's {environment} key works."),
        Passed(Step.ORGANIZATION, _ACTIVE),
    )
    return Explanation(refusal, at, f"{refusal.reply_detail}.", _until(at, iter(first)))


_ACTIVE = "The organization is active."


def _until(at: Step, steps: Iterator[Passed]) -> Sequence[Passed]:
    found = []
    for passed in steps:
        # Only what stands before it may be said: what comes later may not even be there.
        if passed.step == at:
            break
        found.append(passed)
    return found


def _steps(standing: Standing, rate: Rate, question: Question) -> Iterator[Passed]:
    """Yield what there is to say of each step up to the approval."""
    yield Passed(Step.KEY, f"The organization's {standing.environment} key works.")
    yield Passed(Step.ORGANIZATION, _ACTIVE)
    used = rate.limit - rate.remaining - 1
    yield Passed(
        Step.RATE, f"{used:,} of {rate.limit:,} requests of this minute are used, plan {standing.plan}."
    )
    yield Passed(Step.AGENT, "The agent is one of this organization's.")
    yield Passed(Step.SWITCHED_ON, "It is switched on.")
    yield Passed(Step.PERMISSION, f"It has a permission for '{question.action}'.")
    if standing.max_amount is None:
        yield Passed(Step.AMOUNT_NAMED, "Any amount will do: the permission has no largest one.")
    else:
        yield from _amount(plain_number(Decimal(standing.max_amount)), question.context)
    yield Passed(Step.APPROVAL, "A person must approve every call.")


def _amount(maximum: str, context: Mapping[str, Json]) -> Iterator[Passed]:
    if "amount" not in context:
        yield Passed(Step.AMOUNT_NAMED, "No amount is named, which the permission lets pass.")
        return
    yield Passed(Step.AMOUNT_NAMED, "The amount is named.")
    amount = context["amount"]
    said = plain_number(Decimal(amount)) if isinstance(amount, int | Decimal) else ""
    yield Passed(Step.AMOUNT_READ, f"It is a number: {said}.")
    yield Passed(Step.AMOUNT_WITHIN, f"{said} is not above the largest amount, {maximum}.")


async def _settled(
    session: AsyncSession,
    settings: Settings,
    key_digest: str,
    question: Question,
    first: Permitted | NeedsApproval,
    permission_id: str | None,
    passed: list[Passed],
) -> Explanation:
    if isinstance(first, Permitted):
        passed[-1] = Passed(Step.APPROVAL, _NOBODY)

    def hear(step: Step, found: str) -> None:
        passed.append(Passed(step, _PASSED[step].format(found, settings=settings)))

    verdict = await settle(session, settings, key_digest, question, None, b"", hear)
    match verdict:
        case Permitted():
            return Explanation(
                verdict, Step.NAMED, "It may happen without the approval it names.", passed[:-1]
            )
        case Blocked():
            return Explanation(verdict, verdict.at, f"{verdict.reason}.", passed)
        case Held(at=Step.ASKED):
            people = (await session.exec(_PEOPLE, params={"id": permission_id})).one()
            return Explanation(verdict, verdict.at, _asked(people), passed)
        case Held() | LetThrough():
            return Explanation(verdict, verdict.at, _DECIDED[verdict.at], passed)


#: what is said of a step behind the approval that was passed
_PASSED: Mapping[Step, str] = {
    Step.NAMED: "Approval {0} is of this very check.",
    Step.CALL: "Call {0!r} was not let through before.",
    Step.APPROVED: "An approval of the same call no longer counts: {0}.",
    Step.DENIED: "The call was not denied, and no equal one within the last {settings.denial_memory_seconds} seconds.",
    Step.DENIALS: "The action is not blocked by denials.",
    Step.ROOM: "Fewer than {settings.pending_per_agent} requests of the agent wait.",
}
#: what is said of a step that holds a check, or lets it through
_DECIDED: Mapping[Step, str] = {
    Step.APPROVED: "A person approved the same call; the approval would be used up.",
    Step.ALLOWED: "It is allowed for a while; one call of those left would be used up.",
    Step.CHANGED: "A person changed this very call; what they made of it waits.",
    Step.WAITING: "The same call waits for a person already.",
}
_PEOPLE = select(Permission.required_approvals).where(col(Permission.id) == bindparam("id"))


def _asked(people: int) -> str:
    return f"A new request would be made, and wait for {'a person' if people == 1 else f'{people} people'}."
