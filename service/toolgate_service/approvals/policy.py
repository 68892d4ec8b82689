"""Rules of approval requests: who may approve, how many approvers are required, valid edits, and denial blocks.

The gateway applies the rules for approvers twice: when an approver decides, and when a check consumes the approval.
Each time, the stricter rule applies: the rule that was stored with the request, or the current rule of the permission.

If an approver edits the context of a call, the original request does not change. The gateway creates a second request
with the edited context. Only a check with exactly this context and the id of the second request consumes the approval.

Denial blocks: after approvers repeatedly reject calls of an agent's action, the gateway denies this action for a fixed
time. Blocks are not stored. The gateway computes them from the stored rejections, called denials here, and from the
times at which admins ended a block.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from sqlalchemy import bindparam
from sqlmodel import col, delete, literal, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import (
    APPROVED,
    DENIED,
    Approval,
    ApprovalVote,
    DenialClearance,
    ruled_permission_id,
)
from toolgate_service.audit import service as audit
from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors, not_found
from toolgate_service.core.sdk_fields import SdkFields
from toolgate_service.core.settings import Settings
from toolgate_service.core.strict_json import Json, canonical
from toolgate_service.db.database import now
from toolgate_service.grants.models import ACTIVE, Grant, GrantVote
from toolgate_service.permissions.models import Permission, find_amount_violation, loosening_users
from toolgate_service.rules.evaluation import RuleTerms, intersect

#: The SDK replaces a redacted argument by a JSON object. The member with this name contains a keyed digest of the
#: argument's value.
DIGEST_MEMBER = "$digest"
_DENIALS = (
    select(Approval.action, Approval.decided_at)
    .outerjoin(
        DenialClearance,
        (col(DenialClearance.agent_id) == Approval.agent_id)
        & (col(DenialClearance.action) == Approval.action),
    )
    .where(
        col(Approval.organization_id) == bindparam("organization_id"),
        col(Approval.environment) == bindparam("environment"),
        col(Approval.agent_id) == bindparam("agent_id"),
        # Write the value as a literal into the SQL: for a bound parameter, SQLite would not use the partial index.
        col(Approval.status) == literal(DENIED, literal_execute=True),
        col(Approval.decided_at) > bindparam("since"),
        or_(
            col(DenialClearance.cleared_at).is_(None),
            col(Approval.decided_at) > col(DenialClearance.cleared_at),
        ),
    )
    .order_by(col(Approval.decided_at).desc())
)

_DENIALS_OF_ACTION = _DENIALS.where(col(Approval.action) == bindparam("action"))


class Terms(NamedTuple):
    """Approval rules of a permission: who may approve a call, and how many approvers are required.

    Attributes:
        required_approvals: Number of different users who must approve.
        separation_of_duties: True if the users in `makers` may not approve.
        makers: Ids of the users who created the agent or the permission, or changed the permission to allow more.
        approvers: Ids of the only users who may approve, if rules restrict the approvers; None if every user with the
            right may approve.
    """

    required_approvals: int
    separation_of_duties: bool
    makers: frozenset[str]
    approvers: frozenset[str] | None = None

    @classmethod
    def of_rules(cls, terms: RuleTerms) -> "Terms":
        """Return the terms that rules require in addition to the terms of the permission."""
        return cls(terms.required_approvals or 1, False, frozenset(), terms.approvers)

    def stricter(self, other: "Terms") -> "Terms":
        """Return the combination of two sets of approval rules, with the stricter value of each rule."""
        return Terms(
            max(self.required_approvals, other.required_approvals),
            self.separation_of_duties or other.separation_of_duties,
            self.makers | other.makers,
            intersect(self.approvers, other.approvers),
        )


def current_terms(permission: Permission | None, agent: Agent) -> Terms:
    """Return the current approval rules of a permission; without a permission, one user must approve."""
    if permission is None:
        return Terms(1, False, frozenset({agent.created_by}))
    makers = {agent.created_by, permission.created_by, *loosening_users(permission)}
    return Terms(permission.required_approvals, permission.separation_of_duties, frozenset(makers))


def stored_terms(of: Approval | Grant) -> Terms:
    """Return the approval rules that were stored when a request was created.

    A temporary approval (grant) has the rules of the request with which it was proposed. Rows from before the schema
    revision 0016 contain only `required_approvals`.
    """
    makers = json.loads(of.makers) if of.makers else ()
    approvers = None if of.approvers is None else frozenset(json.loads(of.approvers))
    return Terms(of.required_approvals, bool(of.separation_of_duties), frozenset(makers), approvers)


def store_terms(of: Approval | Grant, terms: Terms) -> None:
    """Store approval rules in the row of a request or of a temporary approval."""
    of.required_approvals, of.separation_of_duties = terms.required_approvals, terms.separation_of_duties
    of.makers = json.dumps(sorted(terms.makers))
    of.approvers = None if terms.approvers is None else json.dumps(sorted(terms.approvers))


#: ids of the users who voted: a collection of ids, or a query that selects them
Voters: TypeAlias = Collection[str] | SelectOfScalar[str]


async def approver_rejection(session: AsyncSession, of: Approval | Grant, user_id: str) -> str | None:
    """Return the reason why a user may not approve a request or a temporary approval; None if the user may.

    The reason contains no names or ids of users, because agents receive it too.
    """
    terms, reasons = await _evaluate_voters(session, of, [user_id], None)
    return _shortfall(terms, reasons, 1)


async def quorum_failure(
    session: AsyncSession, of: Approval | Grant, voters: Voters, more: Terms | None = None
) -> str | None:
    """Return the reason why the voters are not enough to approve a request or a temporary approval.

    The result is None if they are enough. `more` contains further terms (number of approvals, allowed approvers), which
    rules require for this call.
    """
    terms, reasons = await _evaluate_voters(session, of, voters, more)
    return _shortfall(terms, reasons, 1 if terms is None else terms.required_approvals)


async def _evaluate_voters(
    session: AsyncSession, of: Approval | Grant, voters: Voters, more: Terms | None
) -> tuple[Terms | None, Sequence[str | None]]:
    """Return the approval rules that apply, and for each voter the reason why the vote does not count.

    The rules are None if the permission was deleted. The reason is None for a vote that counts. Voters who are no
    longer members of the organization are left out.
    """
    query = (
        select(Agent, Permission, User)
        .outerjoin(
            Permission,
            (col(Permission.id) == of.permission_id)
            & (col(Permission.organization_id) == Agent.organization_id)
            & (col(Permission.agent_id) == Agent.id),
        )
        .outerjoin(
            User,
            (col(User.organization_id) == Agent.organization_id)
            & col(User.id).in_(voters)
            & col(User.removed_at).is_(None),
        )
        .where(Agent.id == of.agent_id, Agent.organization_id == of.organization_id)
    )
    # If there is no permission, or none of the voters is still a member, the outer joins return None instead.
    users: Sequence[tuple[Agent, Permission | None, User | None]] = (await session.exec(query)).all()
    if not users:
        return None, ()
    agent, permission, _ = users[0]
    if permission is None and of.permission_id != ruled_permission_id(of.action):
        return None, ()
    terms = current_terms(permission, agent).stricter(stored_terms(of))
    if more is not None:
        terms = terms.stricter(more)
    return terms, [_reason(terms, user) for _, _, user in users if user is not None]


def _reason(terms: Terms, user: User) -> str | None:
    if user.role == VIEWER:
        return "the approver's role is 'viewer', which may not decide"
    if terms.approvers is not None and user.id not in terms.approvers:
        return "the rule that requires the approval names other approvers"
    if terms.separation_of_duties and user.id in terms.makers:
        return "users who created the agent, or created or loosened the permission, may not approve (separation of duties)"
    return None


def _shortfall(terms: Terms | None, reasons: Sequence[str | None], required: int) -> str | None:
    if terms is None:
        return "the permission was deleted"
    counted = reasons.count(None)
    if counted >= required:
        return None
    lost = next((reason for reason in reasons if reason is not None), None)
    if lost is None and required == 1:
        return "the approver is not a member of this organization"
    return lost or f"{required} users must approve the call, but only {counted} of the approvals are valid"


async def approval_invalid_reason(session: AsyncSession, approval: Approval, more: Terms) -> str | None:
    """Return the reason why an approved request can no longer be used for a call; None if it can.

    `more` contains the terms (number of approvals, allowed approvers) that the current rules require for the call.
    """
    if approval.grant_id is None:
        voters = select(ApprovalVote.user_id).where(
            ApprovalVote.approval_id == approval.id, ApprovalVote.decision == APPROVED
        )
        return await quorum_failure(session, approval, voters, more)
    grant = (await session.exec(select(Grant).where(Grant.id == approval.grant_id))).first()
    if grant is None:
        return "the temporary approval was deleted"
    return await grant_invalid_reason(session, grant, more) or await quorum_failure(
        session, approval, voters_of(grant), more
    )


async def grant_invalid_reason(session: AsyncSession, grant: Grant, more: Terms) -> str | None:
    """Return the reason why a temporary approval is not valid for a call; None if it is valid.

    `more` contains the terms (number of approvals, allowed approvers) that rules require for the call. The remaining
    uses and the expiry are not checked here.
    """
    if grant.status != ACTIVE:
        return "the temporary approval was revoked"
    return await quorum_failure(session, grant, voters_of(grant), more)


def voters_of(grant: Grant) -> SelectOfScalar[str]:
    """Return the query that selects the ids of the users who voted for a temporary approval."""
    return select(GrantVote.user_id).where(GrantVote.grant_id == grant.id)


async def validate_edit(session: AsyncSession, approval: Approval, context: Mapping[str, Json]) -> str:
    """Validate the context that an approver edited, and return it as canonical JSON.

    Raises:
        FieldErrors: The context is invalid, changes a redacted value, or contains an amount above the permission's
            limit. Both the current limit and the limit at the creation of the request apply.
    """
    fields = SdkFields({"context": dict(context)})
    fields.context("context")
    fields.finish()
    if fields.canonical == approval.context:
        return fields.canonical
    before = dict(redacted_values(strict_json.loads_own(approval.context)))
    after = dict(redacted_values(dict(context)))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            raise FieldErrors(
                {"context": [f"{path!r} is redacted and cannot be edited; send the original value"]}
            )
    query = select(Permission).where(Permission.id == approval.permission_id)
    limits: list[Permission | Approval] = [approval, *(await session.exec(query)).all()]
    for limit in reversed(limits):
        required = bool(limit.amount_required)
        violation = find_amount_violation(limit.max_amount, required, approval.action, context)
        if violation is not None:
            raise FieldErrors({"context": [violation.reason]})
    return fields.canonical


def redacted_values(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the canonical JSON of each redacted value, at any depth of nesting."""
    match value:
        case dict() if DIGEST_MEMBER in value:
            yield path, canonical(value)
        case dict():
            for name, member in value.items():
                yield from redacted_values(member, _member_path(path, name))
        case list():
            for index, item in enumerate(value):
                yield from redacted_values(item, f"{path}[{index}]")


def _member_path(path: str, name: str) -> str:
    # Quote names that contain dots or brackets, so that the member "a.b" differs from the member "b" of "a".
    if not name or set(name) & set(".[]"):
        return f"{path}[{name!r}]"
    return f"{path}.{name}" if path else name


def block_end(
    denials: Sequence[datetime], threshold: int, window: timedelta, duration: timedelta
) -> datetime | None:
    """Return the end of the newest block of an action after repeated denials; None if there is no block.

    If at least `threshold` denials occur within `window`, a block begins at the last of them and lasts for `duration`.
    `denials` contains the times of the denials, newest first.
    """
    for last, first in zip(denials, denials[threshold - 1 :], strict=False):
        if last - first <= window:
            return last + duration
    return None


async def load_denial_blocks(
    session: AsyncSession, settings: Settings, agent: tuple[str, str, str], action: str | None = None
) -> Mapping[str, datetime]:
    """Return the actions that an agent may not use after repeated denials, each with the end of the block.

    `agent` contains the id of the organization, the name of the environment and the id of the agent. If `action` is
    given, only the block of this action is returned.
    """
    moment = now(session)
    window = timedelta(seconds=settings.denial_window_seconds)
    duration = timedelta(seconds=settings.denial_block_seconds)
    denials = await _load_denials(session, agent, action, moment - window - duration)
    ends = {
        name: block_end(moments, settings.denials_before_block, window, duration)
        for name, moments in denials.items()
    }
    return {name: end for name, end in sorted(ends.items()) if end is not None and end > moment}


async def _load_denials(
    session: AsyncSession, agent: tuple[str, str, str], action: str | None, since: datetime
) -> Mapping[str, Sequence[datetime]]:
    organization_id, environment, agent_id = agent
    values = {
        "organization_id": organization_id,
        "environment": environment,
        "agent_id": agent_id,
        "since": since,
        "action": action,
    }
    found: defaultdict[str, list[datetime]] = defaultdict(list)
    query = _DENIALS if action is None else _DENIALS_OF_ACTION
    for name, moment in (await session.exec(query, params=values)).all():
        if moment is not None:
            found[name].append(moment)
    return found


async def clear_denial_block(
    session: AsyncSession, settings: Settings, caller: Caller, agent: Agent, action: str
) -> None:
    """Allow an action again that is blocked after repeated denials.

    The earlier denials no longer count towards a new block.

    A call that an approver rejected remains denied for `denial_cache_seconds`, even after the block has ended.

    Raises:
        ApiError: 404 if the action is not blocked.
    """
    tenant = (agent.organization_id, agent.environment, agent.id)
    if not await load_denial_blocks(session, settings, tenant, action):
        raise not_found("Denial block")
    earlier = delete(DenialClearance).where(
        col(DenialClearance.agent_id) == agent.id, col(DenialClearance.action) == action
    )
    await session.exec(earlier)
    session.add(
        DenialClearance(
            agent_id=agent.id,
            action=action,
            organization_id=agent.organization_id,
            environment=agent.environment,
            cleared_by=caller.user_id,
            cleared_at=now(session),
        )
    )
    audit.record(
        session,
        caller,
        "agent.denial_block_cleared",
        agent.id,
        environment=agent.environment,
        changes={"action": action},
    )
