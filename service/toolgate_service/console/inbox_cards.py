"""Cards of approval requests in the console: arguments, reasons for the approval, and outcomes of similar requests."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import load_only
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.access_requests.repository import find_justifications
from toolgate_service.approvals.models import (
    APPROVED,
    CONSUMED,
    DENIED,
    EXPIRED,
    NO_PERMISSION,
    PENDING,
    Approval,
    state_of,
)
from toolgate_service.approvals.policy import approver_rejection
from toolgate_service.approvals.schemas import ApprovalView, serialize_approvals
from toolgate_service.budgets.models import Budget
from toolgate_service.console.dependencies import PageContext
from toolgate_service.console.filters import MAX_CARD_LENGTH, ActionLabel, Arguments, describe_action, lay_out
from toolgate_service.console.queries import load_emails
from toolgate_service.core.strict_json import plain_number
from toolgate_service.core.text_safety import hidden_names
from toolgate_service.db.database import now
from toolgate_service.permissions.models import Permission
from toolgate_service.rules.models import Rule

#: Number of an agent's newest approval requests among which the card searches for similar requests.
HISTORY_LIMIT = 200
SHOWN_PAST_REQUESTS = 3

#: Columns that are loaded to find similar requests. The arguments are not loaded, because they may be long.
_COLUMNS = tuple(
    getattr(Approval, name)
    for name in (
        "id",
        "action",
        "status",
        "digest",
        "created_at",
        "expires_at",
        "decided_at",
        "decided_by",
        "note",
        "grant_id",
        "agent_id",
    )
)


@dataclass(frozen=True, slots=True)
class PastRequest:
    """Earlier approval request of an agent, listed on the card of a newer request for the same action.

    Attributes:
        outcome: State of the earlier request, such as ``approved`` or ``expired``; never ``pending``.
        same: True if both requests have identical arguments.
        when: Time of the decision; for a request without a decision, the time at which it was created.
        by: E-mail address of the user who decided; None if no user decided it.
        note: Note of the user who decided.
        granted: True if a temporary approval covered the request, so that no user had to decide.
    """

    id: str
    outcome: str
    same: bool
    when: datetime
    by: str | None
    note: str | None
    granted: bool


@dataclass(frozen=True, slots=True)
class SimilarRequests:
    """Outcomes of an agent's earlier approval requests for the same action.

    Attributes:
        approved: Number of approved requests.
        denied: Number of rejected requests.
        expired: Number of expired requests.
        same: Number of requests whose arguments are identical to those of the displayed request.
        latest: The newest `SHOWN_PAST_REQUESTS` requests, newest first.
    """

    approved: int
    denied: int
    expired: int
    same: int
    latest: Sequence[PastRequest]


async def find_similar(session: AsyncSession, approvals: Sequence[Approval]) -> Mapping[str, SimilarRequests]:
    """Return the outcomes of similar earlier requests, by the id of each given approval request.

    The function runs one database query per agent.
    """
    before = {
        agent: await _of_agent(session, next(one for one in approvals if one.agent_id == agent))
        for agent in {approval.agent_id for approval in approvals}
    }
    deciders = {row.decided_by for rows in before.values() for row in rows if row.decided_by}
    names = await load_emails(session, deciders)
    moment = now(session)
    return {one.id: _summarize(one, before[one.agent_id], names, moment) for one in approvals}


async def _of_agent(session: AsyncSession, approval: Approval) -> Sequence[Approval]:
    query = (
        select(Approval)
        .where(
            Approval.organization_id == approval.organization_id,
            Approval.environment == approval.environment,
            Approval.agent_id == approval.agent_id,
        )
        .order_by(col(Approval.created_at).desc(), col(Approval.id).desc())
        .limit(HISTORY_LIMIT)
        .options(load_only(*_COLUMNS, raiseload=True))
    )
    return (await session.exec(query)).all()


def _summarize(
    approval: Approval, before: Sequence[Approval], names: Mapping[str, str], moment: datetime
) -> SimilarRequests:
    states = [
        (one, state_of(one, moment))
        for one in before
        if one.action == approval.action and one.id not in {approval.id, approval.replaces}
    ]
    past = [(one, state) for one, state in states if state != PENDING]
    counted = [state for _, state in past]
    latest = [
        PastRequest(
            one.id,
            state,
            one.digest == approval.digest,
            one.decided_at or one.created_at,
            names.get(one.decided_by or ""),
            one.note,
            one.grant_id is not None,
        )
        for one, state in past[:SHOWN_PAST_REQUESTS]
    ]
    return SimilarRequests(
        approved=counted.count(APPROVED) + counted.count(CONSUMED),
        denied=counted.count(DENIED),
        expired=counted.count(EXPIRED),
        same=sum(one.digest == approval.digest for one, _ in past),
        latest=latest,
    )


@dataclass(frozen=True, slots=True)
class Card:
    """Approval request as the inbox displays it to the signed-in user.

    Attributes:
        reasons: Sentences that explain why the call needs an approval; empty if the request is not pending.
        justification: Business justification that the client of an access request submitted; None if there is none.
        people: E-mail addresses, by user id, of the users who voted and of the user who decided.
        voted: E-mail addresses of the users who have approved the request.
        has_voted: True if the signed-in user has approved the request.
        may_deny: True if the card has a reject button.
        may_approve: True if the card has an approve button.
        refusal: Reason why the signed-in user may not approve the request, only reject it; None if there is none.
        editable: Arguments as JSON that the user can edit; empty if `may_approve` is False.
        open_fields: Names of arguments that may differ in the further calls that a temporary approval covers.
        moment: Time at which the card was created, by the clock of the database.
    """

    approval: ApprovalView
    action: ActionLabel
    arguments: Arguments
    reasons: Sequence[str]
    justification: str | None
    similar: SimilarRequests
    people: Mapping[str, str]
    voted: Sequence[str]
    has_voted: bool
    is_pending: bool
    may_deny: bool
    may_approve: bool
    refusal: str | None
    editable: str
    open_fields: Sequence[str]
    moment: datetime


async def load_cards(
    session: AsyncSession, page: PageContext, approvals: Sequence[Approval], *, whole: bool = False
) -> list[Card]:
    """Return the cards of approval requests that belong to one environment.

    Long arguments are truncated unless `whole` is True.
    """
    if not approvals:
        return []
    shown = await serialize_approvals(session, approvals)
    similar = await find_similar(session, approvals)
    permissions = await _permissions(session, approvals)
    rules = await _names(session, Rule, approvals, {one.rule_id for one in approvals})
    budgets = await _names(session, Budget, approvals, {one.budget_id for one in approvals})
    justifications = await find_justifications(session, approvals)
    people = await load_emails(session, {user for view in shown for user in _people(view)})
    at_most = None if whole else MAX_CARD_LENGTH
    # Format the arguments in a thread, because formatting large ones would block the event loop.
    arguments = await asyncio.to_thread(
        lambda: [
            lay_out(view.context, len(approval.context), at_most=at_most)
            for approval, view in zip(approvals, shown, strict=True)
        ]
    )
    return [
        await _card(
            session,
            page,
            approval,
            view,
            laid_out,
            similar[view.id],
            permissions.get(approval.permission_id),
            rules.get(approval.rule_id or ""),
            budgets.get(approval.budget_id or ""),
            justifications.get(approval.id),
            people,
        )
        for approval, view, laid_out in zip(approvals, shown, arguments, strict=True)
    ]


async def _card(
    session: AsyncSession,
    page: PageContext,
    approval: Approval,
    view: ApprovalView,
    arguments: Arguments,
    similar: SimilarRequests,
    permission: Permission | None,
    rule: str | None,
    budget: str | None,
    justification: str | None,
    people: Mapping[str, str],
) -> Card:
    is_pending = view.status == PENDING
    voted = [vote.user_id for vote in view.votes if vote.decision == "approved"]
    # Approvers must see all arguments before they decide. A card with truncated arguments therefore has no buttons. The
    # page of the request shows all arguments and has the buttons.
    decides = is_pending and page.may_decide and arguments.is_complete
    refusal = None
    if decides and (view.approvers is not None or _is_separated(view, permission)):
        refusal = await approver_rejection(session, approval, page.caller.user_id)
    may_approve = decides and refusal is None
    return Card(
        approval=view,
        action=describe_action(view.action),
        arguments=arguments,
        reasons=_reasons(view, permission, rule, budget) if is_pending else [],
        justification=justification,
        similar=similar,
        people=people,
        voted=[people.get(user, "a former member") for user in voted],
        has_voted=page.caller.user_id in voted,
        is_pending=is_pending,
        may_deny=decides,
        may_approve=may_approve,
        refusal=refusal,
        editable=arguments.raw if may_approve else "",
        open_fields=[name for name in view.context if name != "amount" and name.isprintable()][:100],
        moment=now(session),
    )


def _reasons(
    view: ApprovalView, permission: Permission | None, rule: str | None, budget: str | None
) -> list[str]:
    if permission is None and view.permission_id != NO_PERMISSION:
        return ["The permission was deleted: the call cannot run even if you approve it."]
    reasons = []
    if view.rule_id is not None:
        reasons.append(
            "A rule required an approval for this call. The rule was deleted afterwards."
            if rule is None
            else f"The rule '{rule}' requires an approval for this call."
        )
    if view.budget_id is not None:
        reasons.append(
            "This call would have exceeded a budget. The budget was deleted afterwards."
            if budget is None
            else f"This call would exceed the budget '{budget}'. If you approve the call, it may run nevertheless."
        )
    if view.approvers is not None:
        reasons.append("Only the approvers that the rule names may approve this request.")
    by_permission = view.rule_id is None and view.budget_id is None
    if permission is not None and (permission.requires_approval or by_permission):
        reasons.append("The permission requires an approval for every call.")
        if permission.max_amount is not None:
            reasons.append(f"The permission allows amounts up to {plain_number(permission.max_amount)}.")
    required = max(view.required_approvals, permission.required_approvals if permission else 1)
    if required > 1:
        voted = sum(vote.decision == "approved" for vote in view.votes)
        reasons.append(f"{required} people must approve this request; {voted} of them have approved so far.")
    if _is_separated(view, permission):
        reasons.append(
            "Users who created the agent, or created or loosened the permission, cannot approve this request."
        )
    if any(hidden_names(view.context)):
        reasons.append(
            "Some arguments are redacted: the SDK sent only fingerprints (keyed hashes) of their values."
        )
    return reasons


def _is_separated(view: ApprovalView, permission: Permission | None) -> bool:
    return view.separation_of_duties or (permission is not None and permission.separation_of_duties)


def _people(view: ApprovalView) -> set[str]:
    return {vote.user_id for vote in view.votes} | ({view.decided_by} if view.decided_by else set())


async def _permissions(session: AsyncSession, approvals: Sequence[Approval]) -> Mapping[str, Permission]:
    query = select(Permission).where(
        col(Permission.id).in_({one.permission_id for one in approvals}),
        Permission.organization_id == approvals[0].organization_id,
    )
    return {permission.id: permission for permission in (await session.exec(query)).all()}


async def _names(
    session: AsyncSession,
    table: type[Rule | Budget],
    approvals: Sequence[Approval],
    ids: Collection[str | None],
) -> Mapping[str, str]:
    """Return the names of the rules or budgets of the approvals' organization, by id."""
    if not any(ids):
        return {}
    query = select(table.id, table.name).where(
        col(table.id).in_(ids), col(table.organization_id) == approvals[0].organization_id
    )
    return dict((await session.exec(query)).all())
