"""Temporary approvals (grants) that approvers propose when they approve a request.

A proposed temporary approval becomes active when enough approvers have voted for it. It then also approves the pending
requests that it covers.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.events import emit_approval_event
from toolgate_service.approvals.models import APPROVED, PENDING, Approval
from toolgate_service.approvals.policy import quorum_failure, voters_of
from toolgate_service.approvals.schemas import GrantTerms
from toolgate_service.audit import service as audit
from toolgate_service.core import strict_json
from toolgate_service.core.errors import ApiError, FieldErrors
from toolgate_service.core.ids import new_id
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import now
from toolgate_service.grants.models import ACTIVE, PROPOSED, REVOKED, Grant, GrantVote
from toolgate_service.permissions.models import Permission

#: name of the context field whose approved value is a maximum: further calls may contain a smaller value
AMOUNT = "amount"


def covers(
    approved_context: Mapping[str, object], context: Mapping[str, object], free: Collection[str] = ()
) -> bool:
    """Return whether a temporary approval covers a call.

    The call's context must equal `approved_context`, which the approvers saw, with two exceptions: the amount may be
    smaller but not negative, and the fields in `free` may have any value or be missing.
    """
    names = (approved_context.keys() | context.keys()) - set(free)
    return all(
        name in approved_context
        and name in context
        and _field_fits(name, approved_context[name], context[name])
        for name in names
    )


def _field_fits(name: str, approved_context: object, value: object) -> bool:
    if name == AMOUNT and _is_number(approved_context) and _is_number(value):
        return 0 <= Decimal(str(value)) <= Decimal(str(approved_context))
    # Compare the values as JSON text, because in Python the values True and 1 are equal.
    return strict_json.dumps(approved_context, sort_keys=True) == strict_json.dumps(value, sort_keys=True)


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


async def propose(
    session: AsyncSession,
    settings: Settings,
    caller: Caller,
    approval: Approval,
    terms: GrantTerms,
    note: str | None,
) -> Sequence[Approval]:
    """Vote for a temporary approval, in the transaction in which the caller approves the request.

    The first vote creates the temporary approval. All voters must propose the same terms.

    Returns:
        The other pending requests that the temporary approval approved. The result is empty unless this vote made it
        active.

    Raises:
        FieldErrors: 400 if `ignored_fields` contains the field `amount`, or a field that is not in the context.
        ApiError: 409 if an earlier voter proposed different terms, or if the proposed temporary approval is no longer
            waiting for votes.
    """
    context = strict_json.loads_own(approval.context)
    assert isinstance(context, dict)  # noqa: S101 - for the type checker: stored contexts are always objects
    free = _validate_free_fields(terms, context)
    grant = await _find_proposal(session, approval)
    if grant is None:
        grant = _new_grant(session, approval, terms, free)
    elif (grant.uses, grant.seconds, json.loads(grant.except_fields)) != (
        terms.max_uses,
        terms.duration_seconds,
        free,
    ):
        raise ApiError(
            409,
            "A temporary approval with other terms was already proposed for this request: "
            f"max_uses {grant.uses}, duration_seconds {grant.seconds}, ignored_fields {json.loads(grant.except_fields)}; "
            "approve with the same terms, or without a temporary approval",
        )
    session.add(grant)
    await session.flush()
    session.add(
        GrantVote(
            grant_id=grant.id,
            user_id=caller.user_id,
            organization_id=grant.organization_id,
            environment=grant.environment,
            note=note,
            credential=strict_json.dumps(dict(caller.credential)),
            created_at=now(session),
        )
    )
    await session.flush()
    if await quorum_failure(session, grant, voters_of(grant)) is not None:
        _audit(session, caller, grant, "grant.proposed")
        return ()
    moment = now(session)
    grant.status, grant.starts_at = ACTIVE, moment
    grant.expires_at = moment + timedelta(seconds=grant.seconds)
    _audit(session, caller, grant, "grant.created")
    return await _approve_covered(session, settings, caller, grant)


async def end_proposal(session: AsyncSession, approval: Approval) -> None:
    """Revoke a temporary approval that was proposed with a request and has not become active.

    Call this when the request is no longer pending.
    """
    query = select(Grant).where(
        Grant.organization_id == approval.organization_id,
        Grant.environment == approval.environment,
        Grant.approval_id == approval.id,
        Grant.status == PROPOSED,
    )
    grant = (await session.exec(query)).first()
    if grant is not None:
        grant.status, grant.revoked_at = REVOKED, now(session)
        session.add(grant)


async def revoke_grants(session: AsyncSession, owner: Agent | Permission) -> None:
    """Revoke all temporary approvals of an agent or a permission, except expired and exhausted ones."""
    owner_id = col(Grant.agent_id) if isinstance(owner, Agent) else col(Grant.permission_id)
    moment = now(session)
    await session.exec(
        update(Grant)
        .where(
            owner_id == owner.id,
            col(Grant.organization_id) == owner.organization_id,
            col(Grant.environment) == owner.environment,
            col(Grant.status) != REVOKED,
            # Exclude expired and exhausted temporary approvals: they cover no calls, and must not appear as revoked.
            col(Grant.expires_at) > moment,
            col(Grant.uses_left) > 0,
        )
        .values(status=REVOKED, revoked_at=moment)
    )


def _validate_free_fields(terms: GrantTerms, context: Mapping[str, object]) -> list[str]:
    for name in terms.ignored_fields:
        if name == AMOUNT:
            raise FieldErrors(
                {
                    "grant": [
                        f"ignored_fields: {AMOUNT!r} cannot be listed, because smaller amounts are always allowed and larger ones never"
                    ]
                }
            )
        if name not in context:
            raise FieldErrors(
                {"grant": [f"ignored_fields: the context of the request has no field {name!r}"]}
            )
    return sorted(set(terms.ignored_fields))


async def _find_proposal(session: AsyncSession, approval: Approval) -> Grant | None:
    query = select(Grant).where(
        Grant.organization_id == approval.organization_id,
        Grant.environment == approval.environment,
        Grant.approval_id == approval.id,
    )
    grant = (await session.exec(query)).first()
    if grant is not None and grant.status != PROPOSED:
        raise ApiError(
            409,
            f"The temporary approval that was proposed for this request is {grant.status}; approve the request "
            "without a temporary approval",
        )
    return grant


def _new_grant(session: AsyncSession, approval: Approval, terms: GrantTerms, free: list[str]) -> Grant:
    return Grant(
        id=new_id(),
        approval_id=approval.id,
        status=PROPOSED,
        uses=terms.max_uses,
        uses_left=terms.max_uses,
        seconds=terms.duration_seconds,
        except_fields=strict_json.dumps(free),
        created_at=now(session),
        **approval.model_dump(
            include={
                "organization_id",
                "environment",
                "agent_id",
                "permission_id",
                "action",
                "context",
                "required_approvals",
                "separation_of_duties",
                "makers",
                "approvers",
                "expires_at",
            }
        ),
    )


def _audit(session: AsyncSession, caller: Caller, grant: Grant, kind: str) -> None:
    changes = {
        "approval_id": grant.approval_id,
        "uses": grant.uses,
        "seconds": grant.seconds,
        "except_fields": json.loads(grant.except_fields),
        "credential": caller.credential,
    }
    audit.record(session, caller, kind, grant.id, environment=grant.environment, changes=changes)


async def _approve_covered(
    session: AsyncSession, settings: Settings, caller: Caller, grant: Grant
) -> Sequence[Approval]:
    """Approve the pending requests that a temporary approval covers, oldest first, and return them.

    Each request consumes one use. When no uses are left, further requests stay pending.
    """
    query = (
        select(Approval)
        .where(
            Approval.organization_id == grant.organization_id,
            Approval.environment == grant.environment,
            Approval.agent_id == grant.agent_id,
            Approval.permission_id == grant.permission_id,
            Approval.status == PENDING,
            Approval.id != grant.approval_id,
            # A temporary approval does not cover calls over a budget, because its approvers have not seen them.
            col(Approval.budget_id).is_(None),
            # A temporary approval does not approve a request that requires more approvers than the temporary approval
            # itself.
            col(Approval.required_approvals) <= grant.required_approvals,
            col(Approval.expires_at) > now(session),
        )
        .order_by(col(Approval.created_at), col(Approval.id))
    )
    approved_context, free = strict_json.loads_own(grant.context), json.loads(grant.except_fields)
    pending = (await session.exec(query)).all()
    covered = [one for one in pending if covers(approved_context, strict_json.loads_own(one.context), free)]  # type: ignore[arg-type]  # stored contexts are always objects
    # Check for each request that these voters are enough, because the request may have stricter approval rules than the
    # temporary approval.
    allowed = [one for one in covered if await quorum_failure(session, one, voters_of(grant)) is None]
    approved = allowed[: grant.uses_left]
    for approval in approved:
        _approve_by_grant(session, settings, caller, grant, approval, now(session))
        await end_proposal(session, approval)
    await emit_approval_event(session, "approved", *approved)
    return approved


def _approve_by_grant(
    session: AsyncSession,
    settings: Settings,
    caller: Caller,
    grant: Grant,
    approval: Approval,
    moment: datetime,
) -> None:
    approval.status, approval.decided_at, approval.decided_by = APPROVED, moment, caller.user_id
    approval.grant_id, approval.remind_at = grant.id, None
    approval.expires_at = min(moment + timedelta(seconds=settings.approval_use_ttl_seconds), grant.expires_at)
    grant.uses_left -= 1
    session.add(approval)
    audit.record(
        session,
        caller,
        "approval.approved",
        approval.id,
        environment=approval.environment,
        changes={"digest": approval.digest, "grant_id": grant.id, "credential": caller.credential},
    )
