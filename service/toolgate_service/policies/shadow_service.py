"""Shadow policies: start, read, discard and promote.

An environment has at most one shadow policy: a policy that the gateway also evaluates for each check, without an effect
on the response. The module `policies.shadow` compares the results of the shadow policy with the decisions of the
gateway, and counts the differences.
"""

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core import strict_json
from toolgate_service.core.errors import not_found
from toolgate_service.core.ids import new_id, time_of_id
from toolgate_service.db.database import now
from toolgate_service.policies.document import PolicyDocument, digest_of
from toolgate_service.policies.models import PolicyShadow, PolicyShadowSample
from toolgate_service.policies.repository import load_policy
from toolgate_service.policies.schemas import (
    NewShadow,
    PolicyApplied,
    ShadowCounts,
    ShadowSample,
    ShadowView,
)
from toolgate_service.policies.service import apply_in_transaction, verify, verify_agents


async def get_shadow(session: AsyncSession, caller: Caller, environment: str) -> ShadowView:
    """Return the shadow policy of an environment, with the counts of its results and examples of differing checks.

    Raises:
        ApiError: 404 if the environment has no shadow policy.
    """
    return await _serialize(session, await _get(session, caller, environment))


async def start_shadow(context: AppContext, caller: Caller, environment: str, new: NewShadow) -> ShadowView:
    """Start a shadow policy, which applies from the next check on, on every gateway.

    If the environment already has a shadow policy, the new one replaces it, and the old results are deleted.

    Raises:
        FieldErrors: 400, the policy is invalid, or `verify_agents` rejects its agents.
    """
    await verify(new.policy)
    async with transaction_as(context, caller) as session:
        loaded = await load_policy(session, caller.organization_id, environment)
        verify_agents(loaded, new.policy)
        present = await _find(session, caller, environment)
        if present is not None:
            await _delete(session, present)
        shadow = PolicyShadow(
            id=new_id(),
            organization_id=caller.organization_id,
            environment=environment,
            document=strict_json.dumps(new.policy.model_dump()),
            digest=digest_of(new.policy),
            message=new.message or "",
            created_by=caller.user_id,
            created_at=now(session),
        )
        session.add(shadow)
        await session.flush()
        _record(session, caller, "policy.shadow_started", shadow)
        return await _serialize(session, shadow)


async def discard_shadow(context: AppContext, caller: Caller, environment: str) -> None:
    """End the shadow policy of an environment and delete its results.

    Raises:
        ApiError: 404 if the environment has no shadow policy.
    """
    async with transaction_as(context, caller) as session:
        shadow = await _get(session, caller, environment)
        await _delete(session, shadow)
        _record(session, caller, "policy.shadow_discarded", shadow)


async def promote_shadow(context: AppContext, caller: Caller, environment: str, base: str) -> PolicyApplied:
    """Apply the shadow policy of an environment as a new revision, and end the shadow policy, in one transaction.

    Raises:
        FieldErrors: 400, the policy is no longer valid: it contains the id of an agent that was deleted, or a name that
            several agents now have.
        ApiError: 404 if the environment has no shadow policy; 409 if the digest of the current policy is no longer
            `base`.
        PlanLimitExceeded: The plan of the organization allows no further agents.
    """
    async with transaction_as(context, caller) as session:
        shadow = await _get(session, caller, environment)
        policy = _read_document(shadow)
        applied = await apply_in_transaction(
            context, session, caller, environment, policy, base, shadow.message
        )
        await _delete(session, shadow)
        _record(session, caller, "policy.shadow_promoted", shadow)
        return applied


async def _find(session: AsyncSession, caller: Caller, environment: str) -> PolicyShadow | None:
    query = select(PolicyShadow).where(
        PolicyShadow.organization_id == caller.organization_id, PolicyShadow.environment == environment
    )
    return (await session.exec(query)).first()


async def _get(session: AsyncSession, caller: Caller, environment: str) -> PolicyShadow:
    shadow = await _find(session, caller, environment)
    if shadow is None:
        raise not_found("Shadow policy")
    return shadow


async def _delete(session: AsyncSession, shadow: PolicyShadow) -> None:
    # Delete the shadow policy's row before its samples. A gateway that adds samples locks this row first, so the first
    # statement waits for the gateway's transaction, and the second one also deletes the samples of that transaction.
    for table in (PolicyShadow, PolicyShadowSample):
        await session.exec(
            delete(table).where(
                col(table.organization_id) == shadow.organization_id,
                col(table.environment) == shadow.environment,
            )
        )
    session.expunge(shadow)


async def _serialize(session: AsyncSession, shadow: PolicyShadow) -> ShadowView:
    query = (
        select(PolicyShadowSample)
        .where(
            PolicyShadowSample.organization_id == shadow.organization_id,
            PolicyShadowSample.environment == shadow.environment,
            PolicyShadowSample.shadow_id == shadow.id,
        )
        .order_by(col(PolicyShadowSample.decision_id).desc())
    )
    samples = [
        ShadowSample.model_validate(
            sample.model_dump() | {"created_at": time_of_id(sample.decision_id)},
        )
        for sample in await session.exec(query)
    ]
    return ShadowView(
        id=shadow.id,
        policy=_read_document(shadow),
        digest=shadow.digest,
        message=shadow.message,
        created_by=shadow.created_by,
        created_at=shadow.created_at,
        counts=ShadowCounts.model_validate(shadow, from_attributes=True),
        samples=samples,
    )


def _read_document(shadow: PolicyShadow) -> PolicyDocument:
    return PolicyDocument.model_validate(strict_json.loads_own(shadow.document))


def _record(session: AsyncSession, caller: Caller, kind: str, shadow: PolicyShadow) -> None:
    changes = {"digest": shadow.digest, "message": shadow.message}
    audit.record(session, caller, kind, shadow.id, environment=shadow.environment, changes=changes)
