"""What a card says of a request: who, what, with which arguments, why it is held, until when, and what was before."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import PENDING, Approval
from toolgate_service.approvals.rights import why_not
from toolgate_service.approvals.schemas import ApprovalView
from toolgate_service.approvals.views import views
from toolgate_service.console.arguments import ON_A_CARD, Arguments, laid_out
from toolgate_service.console.inbox.similar import Similar, emails, similar_to
from toolgate_service.console.visits import Visit
from toolgate_service.console.words import ActionWords, action_in_words
from toolgate_service.exact_json import plain_number
from toolgate_service.permissions.models import Permission
from toolgate_service.readable.fields import hidden_names
from toolgate_service.storage.database import now


@dataclass(frozen=True, slots=True)
class Card:
    """A request as a card shows it.

    Attributes:
        approval: as the API shows it.
        action: its action in words.
        arguments: what the call would be made with.
        why: it is held, in sentences.
        similar: what became of similar requests.
        people: e-mail addresses by id of whoever voted or decided.
        voted: those who approved it already.
        mine: whether the reader is one of them.
        waits: whether it waits for a decision.
        may_deny: whether the reader may deny it here.
        may_approve: whether the reader may approve it here.
        refusal: why the reader may not approve it; None when they may, or may not decide anything.
        editable: the arguments as JSON, to be edited; empty where they cannot be.
        open_fields: names of fields that may be left open when it is allowed for a while.
        moment: at which all this was so.
    """

    approval: ApprovalView
    action: ActionWords
    arguments: Arguments
    why: Sequence[str]
    similar: Similar
    people: Mapping[str, str]
    voted: Sequence[str]
    mine: bool
    waits: bool
    may_deny: bool
    may_approve: bool
    refusal: str | None
    editable: str
    open_fields: Sequence[str]
    moment: datetime


async def cards(
    session: AsyncSession, visit: Visit, approvals: Sequence[Approval], *, whole: bool = False
) -> list[Card]:
    """Return the cards of some requests.

    Args:
        session: one snapshot.
        visit: for whom.
        approvals: of one organization and environment.
        whole: show arguments of any length.
    """
    if not approvals:
        return []
    shown = await views(session, approvals)
    similar = await similar_to(session, approvals)
    permissions = await _permissions(session, approvals)
    people = await emails(session, {user for view in shown for user in _people(view)})
    at_most = None if whole else ON_A_CARD
    # On a thread: what an agent sends may be made to take long, and nobody's check waits for that.
    arguments = await asyncio.to_thread(
        lambda: [
            laid_out(view.context, len(approval.context), at_most=at_most)
            for approval, view in zip(approvals, shown, strict=True)
        ]
    )
    return [
        await _card(
            session,
            visit,
            approval,
            view,
            laid,
            similar[view.id],
            permissions.get(view.permission_id),
            people,
        )
        for approval, view, laid in zip(approvals, shown, arguments, strict=True)
    ]


async def _card(
    session: AsyncSession,
    visit: Visit,
    approval: Approval,
    view: ApprovalView,
    arguments: Arguments,
    similar: Similar,
    permission: Permission | None,
    people: Mapping[str, str],
) -> Card:
    waits = view.status == PENDING
    voted = [vote.user_id for vote in view.votes if vote.decision == "approved"]
    # Where something is not shown whole, nothing is decided about it.
    decides = waits and visit.may_decide and arguments.whole
    refusal = None
    if decides and permission is not None and _is_separated(view, permission):
        refusal = await why_not(session, approval, visit.caller.user_id)
    may_approve = decides and refusal is None
    return Card(
        approval=view,
        action=action_in_words(view.action),
        arguments=arguments,
        why=list(_why(view, permission)) if waits else [],
        similar=similar,
        people=people,
        voted=[people.get(user, "somebody who left") for user in voted],
        mine=visit.caller.user_id in voted,
        waits=waits,
        may_deny=decides,
        may_approve=may_approve,
        refusal=refusal,
        editable=arguments.raw if may_approve else "",
        open_fields=[name for name in view.context if name != "amount" and name.isprintable()][:100],
        moment=now(session),
    )


def _why(view: ApprovalView, permission: Permission | None) -> list[str]:
    if permission is None:
        return ["Its permission is gone: approving lets nothing happen."]
    told = ["Its permission says that a person must approve every call"]
    if permission.max_amount is not None:
        told[0] += f", up to an amount of {plain_number(permission.max_amount)}"
    told[0] += "."
    required = max(view.required_approvals, permission.required_approvals)
    if required > 1:
        voted = sum(vote.decision == "approved" for vote in view.votes)
        told.append(f"{required} people must approve it; {voted} of them did so far.")
    if _is_separated(view, permission):
        told.append("Users who created the agent, or created or loosened the permission, may not approve it.")
    if any(hidden_names(view.context)):
        told.append("Some arguments are hidden: the agent's process sent only their digests.")
    return told


def _is_separated(view: ApprovalView, permission: Permission) -> bool:
    return view.separation_of_duties or permission.separation_of_duties


def _people(view: ApprovalView) -> set[str]:
    return {vote.user_id for vote in view.votes} | ({view.decided_by} if view.decided_by else set())


async def _permissions(session: AsyncSession, approvals: Sequence[Approval]) -> Mapping[str, Permission]:
    query = select(Permission).where(
        col(Permission.id).in_({one.permission_id for one in approvals}),
        Permission.organization_id == approvals[0].organization_id,
    )
    return {permission.id: permission for permission in (await session.exec(query)).all()}
