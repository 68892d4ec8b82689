"""Suggestions of rules from approved calls.

If approvers approved all requests of an agent for an action in a period, the gateway suggests a candidate policy, which
allows calls with the approved arguments without an approval. The gateway does not apply the candidate. A candidate that
does not allow every approved call is not returned.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import col, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller
from toolgate_service.approvals.models import APPROVED, CANCELLED, CONSUMED, DENIED, Approval, has_state
from toolgate_service.approvals.service import REJECTED
from toolgate_service.core import strict_json
from toolgate_service.core.strict_json import Json
from toolgate_service.db.database import now
from toolgate_service.permissions.schemas import NewPermission
from toolgate_service.policies.argument_conditions import NotCoverable, cover_arguments, quote
from toolgate_service.policies.changes import compare
from toolgate_service.policies.document import PolicyAgent, PolicyDocument
from toolgate_service.policies.evaluation import Outcome, PolicyEvaluator
from toolgate_service.policies.repository import LoadedPolicy, load_policy
from toolgate_service.policies.schemas import SuggestionList, SuggestionView, UnsuggestedView
from toolgate_service.rules.expressions import InvalidExpression, compile_expression
from toolgate_service.rules.schemas import ApprovalTerms, NewRule
from toolgate_service.rules.service import MAX_RULES

#: maximum number of pairs of agent and action in a response; those with the most approved requests come first
MAX_GROUPS = 20
#: maximum number of approved requests, newest first, that are read to find the pairs of agent and action. Only requests
#: of the last `days` days (parameter of `suggest_rules`) are considered.
MAX_REQUESTS = 20_000
#: maximum number of approved requests from which one suggestion is made
MAX_CALLS = 2_000
#: maximum number of characters of the name of a rule
MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """Call that a person approved."""

    context: dict[str, Json]
    run_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Group:
    """Approved requests of one agent for one action.

    Attributes:
        approvals: Number of approved requests.
        calls: Calls of the approved requests, oldest first. At most `MAX_CALLS` + 1 are read, because `suggest` rejects
            larger groups.
    """

    agent_id: str
    action: str
    approvals: int
    calls: Sequence[ApprovedCall]


async def suggest_rules(
    session: AsyncSession, caller: Caller, environment: str, minimum: int, days: int
) -> SuggestionList:
    """Return suggestions from the approval requests of the last `days` days.

    A suggestion needs at least `minimum` approved requests of an agent for an action, and no rejected one. Requests
    that a temporary approval approved, or that only a budget required, do not count.
    """
    until = now(session)
    since = until - timedelta(days=days)
    groups = await _load_groups(session, caller.organization_id, environment, since, minimum)
    loaded = await load_policy(session, caller.organization_id, environment)
    existing = [group for group in groups if group.agent_id in loaded.agents]
    # Evaluate the calls in a thread, because many calls take longer than the event loop may be blocked.
    suggestions, unsuggested = await asyncio.to_thread(_suggest_all, loaded, existing)
    return SuggestionList(since=since, until=until, suggestions=suggestions, unsuggested=unsuggested)


async def _load_groups(
    session: AsyncSession, organization_id: str, environment: str, since: datetime, minimum: int
) -> Sequence[Group]:
    approved = (
        Approval.organization_id == organization_id,
        Approval.environment == environment,
        Approval.created_at >= since,
        col(Approval.decided_by).is_not(None),
        col(Approval.grant_id).is_(None),
        col(Approval.budget_id).is_(None),
        or_(Approval.status == CONSUMED, has_state(APPROVED, now(session))),
    )
    newest = (
        select(Approval.agent_id, Approval.action)
        .where(*approved)
        .order_by(col(Approval.created_at).desc(), col(Approval.id).desc())
        .limit(MAX_REQUESTS)
    )
    numbers = Counter((await session.exec(newest)).all())
    groups: list[Group] = []
    for (agent_id, action), number in numbers.most_common():
        if number < minimum or len(groups) == MAX_GROUPS:
            break
        if await _has_rejection(session, organization_id, environment, agent_id, action, since):
            continue
        query = (
            select(Approval.context, Approval.run_id, Approval.created_at)
            .where(*approved, Approval.agent_id == agent_id, Approval.action == action)
            .order_by(col(Approval.created_at), col(Approval.id))
            .limit(MAX_CALLS + 1)
        )
        calls = [
            ApprovedCall(_read_context(context), run_id or None, created_at)
            for context, run_id, created_at in await session.exec(query)
        ]
        groups.append(Group(agent_id, action, number, calls))
    return groups


async def _has_rejection(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    agent_id: str,
    action: str,
    since: datetime,
) -> bool:
    query = select(Approval.id).where(
        Approval.organization_id == organization_id,
        Approval.environment == environment,
        Approval.agent_id == agent_id,
        Approval.action == action,
        func.coalesce(Approval.decided_at, Approval.cancelled_at, Approval.created_at) >= since,
        or_(
            Approval.status == DENIED,
            (col(Approval.status) == CANCELLED) & (col(Approval.cancel_reason) == REJECTED),
        ),
    )
    return (await session.exec(query.limit(1))).first() is not None


def _read_context(text: str) -> dict[str, Json]:
    context = strict_json.loads_own(text)
    if not isinstance(context, dict):
        raise TypeError("the context of an approval request is not an object")
    return context


def _suggest_all(
    loaded: LoadedPolicy, groups: Iterable[Group]
) -> tuple[Sequence[SuggestionView], Sequence[UnsuggestedView]]:
    suggestions: list[SuggestionView] = []
    unsuggested: list[UnsuggestedView] = []
    evaluator = PolicyEvaluator(loaded.document, loaded.agent_ids)
    for group in groups:
        name, agent_id, action = loaded.agents[group.agent_id].name, group.agent_id, group.action
        try:
            condition, candidate = suggest(loaded.document, evaluator, loaded.agent_ids, group)
        except NotCoverable as reason:
            unsuggested.append(
                UnsuggestedView(
                    agent=name,
                    agent_id=agent_id,
                    action=action,
                    approvals=group.approvals,
                    reason=str(reason),
                )
            )
            continue
        suggestions.append(
            SuggestionView(
                agent=name,
                agent_id=agent_id,
                action=action,
                approvals=group.approvals,
                first_at=group.calls[0].created_at,
                last_at=group.calls[-1].created_at,
                condition=condition,
                policy=candidate,
                changes=[one.view() for one in compare(loaded.identified, candidate)],
                allowed=len(group.calls),
            )
        )
    return suggestions, unsuggested


def suggest(
    policy: PolicyDocument, evaluator: PolicyEvaluator, agent_ids: Mapping[str, str], group: Group
) -> tuple[str, PolicyDocument]:
    """Return the condition that covers the calls of a group, and a candidate policy that allows all of them.

    Args:
        policy: Current policy, without ids of agents whose name is unique.
        evaluator: Evaluator of the current policy.
        agent_ids: Mapping from the unique names and the ids of existing agents to their ids.
        group: Approved calls.

    Raises:
        NotCoverable: There is no such candidate. The message contains the reason.
    """
    if len(group.calls) > MAX_CALLS:
        raise NotCoverable(f"there are more than {MAX_CALLS:,} approved requests: choose a shorter period")
    condition = cover_arguments([call.context for call in group.calls])
    candidate = _build_candidate(policy, evaluator, group, condition)
    allowing = PolicyEvaluator(candidate, agent_ids)
    for call in group.calls:
        judged = allowing.judge(group.agent_id, group.action, call.context, call.run_id, call.created_at)
        if judged.outcome is not Outcome.ALLOWED:
            raise NotCoverable(f"the changed policy does not allow an approved call: {judged.reason}")
    return condition, candidate


def _build_candidate(
    policy: PolicyDocument, evaluator: PolicyEvaluator, group: Group, condition: str
) -> PolicyDocument:
    [agent] = [one for one in policy.agents if evaluator.agent_id(one.reference) == group.agent_id]
    requiring = _find_requirements(evaluator, group)
    permission = next((one for one in agent.permissions if one.action == group.action), None)
    agents, rules = list(policy.agents), list(policy.rules)
    try:
        if requiring:
            same_call = _same_call(policy, agent, group.action, condition)
            rules = [_except(rule, same_call) if rule.name in requiring else rule for rule in rules]
        if permission is not None and permission.requires_approval:
            agents = [_without_approval(one, permission) if one is agent else one for one in agents]
            rules.append(_replacement(permission, agent, policy.rules, condition))
        elif not requiring:
            raise NotCoverable("the current policy does not require an approval for these calls")
    except InvalidExpression as error:
        # For instance, the condition exceeds the maximum length.
        raise NotCoverable(f"the condition of a rule would be invalid: {error}") from None
    if len(rules) > MAX_RULES:
        raise NotCoverable(f"the policy already has {MAX_RULES:,} rules")
    return policy.model_copy(update={"agents": agents, "rules": rules})


def _find_requirements(evaluator: PolicyEvaluator, group: Group) -> frozenset[str]:
    """Return the names of the rules that require an approval for at least one call of the group.

    Raises:
        NotCoverable: The current policy denies one of the calls.
    """
    names: frozenset[str] = frozenset()
    for call in group.calls:
        arguments = (group.agent_id, group.action, call.context, call.run_id, call.created_at)
        judged = evaluator.judge(*arguments)
        if judged.outcome is Outcome.DENIED:
            raise NotCoverable(f"the current policy denies an approved call: {judged.reason}")
        names |= evaluator.find_requiring_rules(*arguments)
    return names


def _same_call(policy: PolicyDocument, agent: PolicyAgent, action: str, condition: str) -> str:
    is_unique = sum(one.name == agent.name for one in policy.agents) == 1
    is_agent = f"agent.name == {quote(agent.name)}" if is_unique else f"agent.id == {quote(agent.reference)}"
    return f"{is_agent} && action == {quote(action)} && {condition}"


def _except(rule: NewRule, same_call: str) -> NewRule:
    """Return a copy of a rule whose condition excludes the calls for which the condition `same_call` is true.

    Raises:
        InvalidExpression: The new condition is invalid, for example too long.
    """
    when = f"!({same_call})" if rule.when is None else f"({rule.when}) && !({same_call})"
    compile_expression(when)
    return rule.model_copy(update={"when": when})


def _without_approval(agent: PolicyAgent, permission: NewPermission) -> PolicyAgent:
    changed = permission.model_copy(update={"requires_approval": False})
    permissions = [changed if one is permission else one for one in agent.permissions]
    return agent.model_copy(update={"permissions": permissions})


def _replacement(
    permission: NewPermission, agent: PolicyAgent, rules: Sequence[NewRule], condition: str
) -> NewRule:
    """Return a rule that replaces the requirement of an approval in a permission.

    The rule requires an approval with the terms of the permission, unless `condition` is true for the call.

    Raises:
        InvalidExpression: The condition of the rule is invalid, for example too long.
    """
    when = f"!({condition})"
    compile_expression(when)
    quorum, seconds = permission.required_approvals, permission.approval_ttl_seconds
    terms = None if quorum == 1 and seconds is None else ApprovalTerms(quorum=quorum, ttl=seconds)
    return NewRule(
        name=_new_name(f"Approval of {permission.action} by {agent.name}", {rule.name for rule in rules}),
        effect="require_approval",
        agents=[agent.reference],
        actions=[permission.action],
        when=when,
        approval=terms,
    )


def _new_name(wanted: str, taken: set[str]) -> str:
    """Return an unused name for a rule: `wanted`, shortened and with a number if necessary."""
    name, number = wanted[:MAX_NAME].strip(), 1
    while name in taken:
        number += 1
        suffix = f" ({number})"
        name = wanted[: MAX_NAME - len(suffix)].strip() + suffix
    return name
