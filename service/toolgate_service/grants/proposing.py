"""Allowing for a while: given with the approval of a request, by as many people as it takes."""

import json
from collections.abc import Sequence
from datetime import timedelta

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.approvals.models import APPROVED, PENDING, Approval
from toolgate_service.approvals.rights import why_not_enough
from toolgate_service.approvals.telling import tell
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, FieldErrors
from toolgate_service.grants.ending import end_proposal
from toolgate_service.grants.matching import AMOUNT, covers
from toolgate_service.grants.models import ACTIVE, PROPOSED, Grant, GrantVote
from toolgate_service.grants.schemas import GrantTerms
from toolgate_service.grants.votes import voters_of
from toolgate_service.ids import new_id
from toolgate_service.settings import Settings
from toolgate_service.storage.database import now


async def propose(
    session: AsyncSession,
    settings: Settings,
    caller: Caller,
    approval: Approval,
    terms: GrantTerms,
    note: str | None,
) -> Sequence[Approval]:
    """Allow what a request asks for a while; where several people must approve, all of them on the same terms.

    Args:
        session: the write transaction in which the caller approves the request.
        settings: how long an approval may be used.
        caller: who approves.
        approval: the request.
        terms: how often, for how long, and what may differ.
        note: the approver's words.

    Returns:
        Other requests that wait, are covered and demand no more people: they are approved by the grant, a use each.

    Raises:
        ApiError: 400 the terms name what cannot differ; 409 others were proposed for this request, or were revoked.
    """
    seen = exact_json.loads_own(approval.context)
    assert isinstance(seen, dict)  # noqa: S101 - what a check stores; for the type checker
    free = _free_fields(terms, seen)
    grant = await _of(session, approval)
    if grant is None:
        grant = _new(session, approval, terms, free)
    elif (grant.uses, grant.seconds, json.loads(grant.except_fields)) != (terms.uses, terms.seconds, free):
        raise ApiError(
            409,
            f"Other terms were proposed for this request: {grant.uses} uses within {grant.seconds} seconds, except "
            f"{json.loads(grant.except_fields)}; approve with the same terms, or without a grant",
        )
    session.add(grant)
    await session.flush()
    _vote(session, caller, grant, note)
    await session.flush()
    if await why_not_enough(session, grant, voters_of(grant)) is not None:
        _audit(session, caller, grant, "grant.proposed")
        return ()
    moment = now(session)
    grant.status, grant.starts_at, grant.expires_at = (
        ACTIVE,
        moment,
        moment + timedelta(seconds=grant.seconds),
    )
    _audit(session, caller, grant, "grant.created")
    return await _approve_covered(session, settings, caller, grant)


def _free_fields(terms: GrantTerms, seen: dict[str, exact_json.Json]) -> list[str]:
    for name in terms.except_fields:
        if name == AMOUNT:
            raise FieldErrors(
                {"grant": [f"except_fields: {AMOUNT!r} cannot be left open; smaller amounts pass anyway"]}
            )
        if name not in seen:
            raise FieldErrors({"grant": [f"except_fields: the context has no field {name!r}"]})
    return sorted(set(terms.except_fields))


async def _of(session: AsyncSession, approval: Approval) -> Grant | None:
    query = select(Grant).where(
        Grant.organization_id == approval.organization_id,
        Grant.environment == approval.environment,
        Grant.approval_id == approval.id,
    )
    grant = (await session.exec(query)).first()
    if grant is not None and grant.status != PROPOSED:
        raise ApiError(
            409, f"The grant that was proposed for this request is {grant.status}; approve without a grant"
        )
    return grant


def _new(session: AsyncSession, approval: Approval, terms: GrantTerms, free: list[str]) -> Grant:
    return Grant(
        id=new_id(),
        approval_id=approval.id,
        status=PROPOSED,
        uses=terms.uses,
        uses_left=terms.uses,
        seconds=terms.seconds,
        except_fields=exact_json.dumps(free),
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
                "expires_at",
            }
        ),
    )


def _vote(session: AsyncSession, caller: Caller, grant: Grant, note: str | None) -> None:
    session.add(
        GrantVote(
            grant_id=grant.id,
            user_id=caller.user_id,
            organization_id=grant.organization_id,
            environment=grant.environment,
            note=note,
            credential=exact_json.dumps(dict(caller.credential)),
            created_at=now(session),
        )
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
    # Those who wait already would otherwise go on waiting for a word that has just been given.
    query = (
        select(Approval)
        .where(
            Approval.organization_id == grant.organization_id,
            Approval.environment == grant.environment,
            Approval.agent_id == grant.agent_id,
            Approval.permission_id == grant.permission_id,
            Approval.status == PENDING,
            Approval.id != grant.approval_id,
            # Made when more people were demanded, it waits for as many.
            col(Approval.required_approvals) <= grant.required_approvals,
            col(Approval.expires_at) > now(session),
        )
        .order_by(col(Approval.created_at), col(Approval.id))
    )
    seen, free = exact_json.loads_own(grant.context), json.loads(grant.except_fields)
    waiting = (await session.exec(query)).all()
    covered = [one for one in waiting if covers(seen, exact_json.loads_own(one.context), free)]  # type: ignore[arg-type]  # contexts are objects
    # Each has terms of its own, which may be stricter than those of the request that led to the grant.
    by_terms = [one for one in covered if await why_not_enough(session, one, voters_of(grant)) is None]
    approved = by_terms[: grant.uses_left]
    for approval in approved:
        _use_for(session, settings, caller, grant, approval)
        await end_proposal(session, approval)
    await tell(session, "approved", *approved)
    return approved


def _use_for(
    session: AsyncSession, settings: Settings, caller: Caller, grant: Grant, approval: Approval
) -> None:
    moment = now(session)
    approval.status, approval.decided_at, approval.decided_by = APPROVED, moment, caller.user_id
    approval.grant_id, approval.remind_at = grant.id, None
    approval.expires_at = min(moment + timedelta(seconds=settings.approved_ttl_seconds), grant.expires_at)
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
