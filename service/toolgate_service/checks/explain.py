"""Step-by-step explanation of the result that a check would have now.

The explanation changes no data, and does not count towards the rate limit. It calls the same functions as the check.
Each decision names the step that produced it; the check passed all earlier steps.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.budgets.repository import BudgetCache
from toolgate_service.checks.decide import (
    Allowed,
    AllowedByApproval,
    ApprovalRequired,
    Denied,
    PendingApproval,
    Step,
    StepObserver,
    call_variables,
    decide,
    response_body,
)
from toolgate_service.checks.schemas import CheckRequest, read_check_request
from toolgate_service.checks.service import decide_in_transaction
from toolgate_service.context import AppContext, AuthContext, load_auth_context, require_active
from toolgate_service.core.errors import ApiError
from toolgate_service.core.settings import Settings
from toolgate_service.core.strict_json import Json, plain_number
from toolgate_service.db.database import now
from toolgate_service.organizations.repository import organization_key
from toolgate_service.permissions.models import Permission
from toolgate_service.rate_limit.limiter import Rate, RateLimiter
from toolgate_service.rules.evaluation import CompiledRule
from toolgate_service.rules.repository import RuleCache


@dataclass(frozen=True, slots=True)
class Passed:
    """A step that the check passes, with a sentence that explains why."""

    step: Step
    detail: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Result that a check would have, with the reasons.

    Attributes:
        decision: The decision, or the error if the gateway would reject the request.
        at: The step that produced the result.
        summary: A sentence that explains the result.
        passed: The earlier steps that the check passes, in order.
        rules: All rules that apply to the agent and the action, and whether the condition of each matches the call.
    """

    decision: Allowed | Denied | PendingApproval | AllowedByApproval | ApiError
    at: Step
    summary: str
    passed: Sequence[Passed]
    rules: Sequence[tuple[CompiledRule, bool]] = ()

    @property
    def response(self) -> bytes | None:
        """JSON response body of the check; None for an error. `approval_id` is null if a request would be created."""
        return None if isinstance(self.decision, ApiError) else response_body(self.decision)

    @property
    def by(self) -> str | None:
        """Id of the approval request or grant that determines the result; None if there is none."""
        match self.decision:
            case AllowedByApproval(by=by):
                return by
            case PendingApproval(approval_id=approval_id):
                return approval_id
        return None


async def explain(
    context: AppContext,
    rate_limiter: RateLimiter,
    rule_cache: RuleCache,
    budget_cache: BudgetCache,
    organization_id: str,
    environment: str,
    body: Mapping[str, Json],
) -> Explanation:
    """Return the result that a check with the organization's API key would have now, with the reasons.

    Args:
        context: Dependencies of the services.
        rate_limiter: Rate limiter, whose counts are read but not changed.
        rule_cache: Cache of the rules of each environment.
        budget_cache: Cache of the budgets of each environment.
        organization_id: Id of the organization.
        environment: Name of the environment.
        body: Parsed body of the check.

    Raises:
        FieldErrors: The body is invalid; the check would be rejected with a 400.
    """
    request = read_check_request(body)._replace(dry_run=True)
    async with context.database.reading() as session:
        key = await organization_key(session, organization_id, environment)
        auth = await load_auth_context(session, key.digest, request.agent_id, request.action)
        arrived = None if auth is None else (auth, await _peek(context, rate_limiter, auth))
        try:
            auth, rate = require_active(arrived)
            if rate.exceeded:
                raise rate.refusal()
        except ApiError as refusal:
            return _explain_error(refusal, auth, environment)
        rules = await rule_cache.load(session, auth)
        moment = now(session)
        decision = decide(auth, request, rules, moment)
        steps = _describe_steps(auth, rate, request, decision)
        explained = rules.explain(auth.agent_id or "", call_variables(auth, request, moment))
        if isinstance(decision, Denied):
            before = _steps_before(decision.at, steps)
            return Explanation(decision, decision.at, f"{decision.reason}.", before, explained)
        if isinstance(decision, Allowed):
            at, summary = _describe_allowed(decision, explained)
            passed = [*_steps_before(at, steps), Passed(at, summary)]
            budgets = (await budget_cache.load(session, auth)).match(auth.agent_id, request.action)
            if request.approval_id is None and not budgets:
                return Explanation(decision, at, summary, passed[:-1], explained)
        else:
            passed = list(steps)

        async def decide_again(
            on_step: StepObserver,
        ) -> Allowed | Denied | PendingApproval | AllowedByApproval:
            result = await decide_in_transaction(
                session, context.settings, rule_cache, budget_cache, key.digest, request, None, b"", on_step
            )
            return result.decision

        found = await _explain_decision(session, context.settings, decide_again, auth, decision, passed)
        return replace(found, rules=explained)


_NO_APPROVAL = "The permission does not require an approval."


def _describe_allowed(decision: Allowed, rules: Sequence[tuple[CompiledRule, bool]]) -> tuple[Step, str]:
    """Return the step that allowed a call without an approval, and a sentence that explains it."""
    if decision.rule_id is None:
        return Step.APPROVAL, _NO_APPROVAL
    [name] = [rule.name for rule, _ in rules if rule.id == decision.rule_id]
    return Step.RULES, f"Rule '{name}' allows the call."


async def _peek(context: AppContext, rate_limiter: RateLimiter, auth: AuthContext) -> Rate | None:
    if not auth.organization_is_active:
        return None
    limit = auth.rate_limit(context.plans)
    return await rate_limiter.peek(auth.organization_id, f"{auth.environment}/actions", limit)


def _explain_error(refusal: ApiError, auth: AuthContext | None, environment: str) -> Explanation:
    at = Step.KEY
    if auth is not None:
        at = Step.RATE if auth.organization_is_active else Step.ORGANIZATION
    first = (
        Passed(Step.KEY, f"The organization's API key for {environment} is valid."),
        Passed(Step.ORGANIZATION, _ACTIVE),
    )
    return Explanation(refusal, at, f"{refusal.detail}.", _steps_before(at, iter(first)))


_ACTIVE = "The organization is active."


def _steps_before(at: Step, steps: Iterator[Passed]) -> Sequence[Passed]:
    before = []
    for passed in steps:
        # Stop the generator here: the sentences of later steps use rows, such as the permission, that may not exist.
        if passed.step == at:
            break
        before.append(passed)
    return before


def _describe_steps(
    auth: AuthContext, rate: Rate, request: CheckRequest, decision: Allowed | Denied | ApprovalRequired
) -> Iterator[Passed]:
    """Yield each step up to `APPROVAL`, with a sentence that explains why the check continues after it."""
    yield Passed(Step.KEY, f"The organization's API key for {auth.environment} is valid.")
    yield Passed(Step.ORGANIZATION, _ACTIVE)
    used = rate.limit - rate.remaining - 1
    yield Passed(
        Step.RATE,
        f"The organization used {used:,} of {rate.limit:,} requests in this minute (plan {auth.plan}).",
    )
    yield Passed(Step.AGENT, "The agent belongs to this organization.")
    yield Passed(Step.FREEZE, "No freeze applies to the call.")
    yield Passed(Step.AGENT_ENABLED, "The agent is enabled.")
    if isinstance(decision, ApprovalRequired) and auth.permission_id is None:
        yield Passed(Step.RULES, f"{decision.reason}.")
        yield Passed(Step.APPROVAL, "The rule requires an approval.")
        return
    yield Passed(Step.RULES, "No rule forbids the call.")
    yield Passed(Step.PERMISSION, f"The agent has a permission for '{request.action}'.")
    if auth.max_amount is None:
        yield Passed(Step.AMOUNT_PRESENT, "The permission has no maximum amount.")
    else:
        yield from _describe_amount(plain_number(Decimal(auth.max_amount)), request.context)
    if isinstance(decision, ApprovalRequired) and not auth.requires_approval:
        yield Passed(Step.APPROVAL, f"{decision.reason}.")
    else:
        yield Passed(Step.APPROVAL, "The permission requires an approval for every call.")


def _describe_amount(maximum: str, context: Mapping[str, Json]) -> Iterator[Passed]:
    if "amount" not in context:
        yield Passed(
            Step.AMOUNT_PRESENT, "The call has no amount, and the permission does not require an amount."
        )
        return
    yield Passed(Step.AMOUNT_PRESENT, "The call has an amount.")
    amount = context["amount"]
    number = plain_number(Decimal(amount)) if isinstance(amount, int | Decimal) else ""
    yield Passed(Step.AMOUNT_VALID, f"The amount is a number: {number}.")
    yield Passed(
        Step.AMOUNT_WITHIN, f"The amount {number} does not exceed the permission's maximum of {maximum}."
    )


async def _explain_decision(
    session: AsyncSession,
    settings: Settings,
    decide_again: Callable[[StepObserver], Awaitable[Allowed | Denied | PendingApproval | AllowedByApproval]],
    auth: AuthContext,
    first: Allowed | ApprovalRequired,
    passed: list[Passed],
) -> Explanation:
    def on_step(step: Step, detail: str) -> None:
        passed.append(Passed(step, _PASSED_TEXTS[step].format(detail, settings=settings)))

    decision = await decide_again(on_step)
    match decision:
        case Allowed(budget_left=str(left)):
            summary = f"The budgets cover the call. After the call, {left} would be left."
            return Explanation(decision, Step.BUDGET, summary, passed[:-1])
        case Allowed():
            return Explanation(
                decision,
                Step.APPROVAL_ID,
                "The call needs no approval, so it is allowed without consuming the approval in approval_id.",
                passed[:-1],
            )
        case Denied():
            return Explanation(decision, decision.at, f"{decision.reason}.", passed)
        case PendingApproval(at=Step.NEW_REQUEST):
            people = await _count_approvers(session, auth, first)
            return Explanation(decision, decision.at, _describe_request(people), passed)
        case PendingApproval() | AllowedByApproval():
            return Explanation(decision, decision.at, _DECIDED_TEXTS[decision.at], passed)


#: sentences that explain why a check passes a step after `APPROVAL`
_PASSED_TEXTS: Mapping[Step, str] = {
    Step.APPROVAL_ID: "Approval {0} belongs to this call.",
    Step.BUDGET_AMOUNT: "The arguments contain the amounts that the budgets need.",
    Step.BUDGET: "All budgets cover the call.",
    Step.CALL_ID: "No approval has allowed a call with the id {0!r} yet.",
    Step.APPROVED: "The same call was approved, but the approval is no longer valid: {0}.",
    Step.DENIED: "The call was not rejected, and no identical call was rejected in the last {settings.denial_cache_seconds} seconds.",
    Step.DENIAL_BLOCK: "The action is not currently blocked because of repeated rejections.",
    Step.PENDING_LIMIT: "The agent has fewer than {settings.pending_per_agent} pending requests.",
}
#: sentences for steps after `APPROVAL` that allow a check or make it wait for an approver
_DECIDED_TEXTS: Mapping[Step, str] = {
    Step.APPROVED: "The same call was approved. A real check would use this approval.",
    Step.GRANT: "A temporary approval covers the call. A real check would use one of its remaining calls.",
    Step.EDITED: "An approver edited this call. The agent must continue with the request of the edited call.",
    Step.PENDING: "An approval request for an identical call is already pending.",
}
_REQUIRED_APPROVALS = select(Permission.required_approvals).where(col(Permission.id) == bindparam("id"))


async def _count_approvers(
    session: AsyncSession, auth: AuthContext, decision: Allowed | ApprovalRequired
) -> int:
    """Return the number of users who must approve a new request, according to the permission and the rules."""
    required = (await session.exec(_REQUIRED_APPROVALS, params={"id": auth.permission_id})).first() or 1
    if isinstance(decision, ApprovalRequired):
        by_rules = decision.terms.required_approvals or 1
        return max(required, by_rules)
    return required


def _describe_request(people: int) -> str:
    return f"A real check would create a new approval request, which requires {'one approval' if people == 1 else f'{people} approvals'}."
