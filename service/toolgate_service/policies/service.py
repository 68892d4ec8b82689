"""Operations on policies: read, plan and apply a policy, restore an earlier revision, and evaluate calls.

A policy is applied in one transaction under the organization's lock, with the functions that also change single agents,
permissions, rules and budgets. Each change therefore has its own audit event and webhook event, and applies from the
next check on.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime

from pydantic import TypeAdapter
from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core import strict_json
from toolgate_service.core.errors import ApiError, FieldErrors, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.policies.changes import Difference, compare
from toolgate_service.policies.document import VERSION, PolicyDocument, digest_of
from toolgate_service.policies.evaluation import Judgement, PolicyEvaluator
from toolgate_service.policies.models import PolicyRevision
from toolgate_service.policies.repository import (
    LoadedPolicy,
    find_latest_revision,
    find_revision,
    find_revision_by_digest,
    load_policy,
    read_document,
)
from toolgate_service.policies.schemas import (
    ChangeView,
    JudgementTermsView,
    JudgementView,
    PolicyApplied,
    PolicyApply,
    PolicyCall,
    PolicyPlan,
    PolicyState,
    RevisionRestore,
    RevisionSummary,
    RevisionView,
)
from toolgate_service.policies.writer import PolicyWriter

#: message of a revision for changes that were not made by applying a policy, but for example by the routes of rules
OTHER_CHANGES = "Changes that were not made by applying a policy"
_CHANGES = TypeAdapter(list[ChangeView])
#: maximum number of changes that the error message lists if the policy changed since it was planned
MAX_SHOWN = 10


async def get_policy(session: AsyncSession, caller: Caller, environment: str) -> PolicyState:
    """Return the current policy of an environment of the organization."""
    loaded = await load_policy(session, caller.organization_id, environment)
    latest = await find_latest_revision(session, caller.organization_id, environment)
    is_current = latest is not None and latest.digest == loaded.digest
    return PolicyState(
        policy=loaded.document,
        digest=loaded.digest,
        revision=latest.number if latest is not None and is_current else None,
    )


async def verify(policy: PolicyDocument) -> None:
    """Verify a document in a thread, because compiling takes up to 1 ms for each condition.

    Raises:
        FieldErrors: 400, the document is invalid.
    """
    await asyncio.to_thread(policy.verify)


async def plan_policy(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    candidate: PolicyDocument,
    base: str | None = None,
) -> PolicyPlan:
    """Return the changes that applying a candidate policy would make to the environment. Nothing is changed.

    Raises:
        FieldErrors: 400, the candidate is invalid, or `verify_agents` rejects its agents.
        ApiError: 409, the candidate contains changes, and the digest of the current policy is no longer `base`.
    """
    await verify(candidate)
    loaded = await load_policy(session, caller.organization_id, environment)
    verify_agents(loaded, candidate)
    differences = await asyncio.to_thread(compare, loaded.identified, candidate)
    if differences and base not in {None, loaded.digest}:
        raise ApiError(409, await _describe_conflict(session, caller, environment, loaded, base or ""))
    return PolicyPlan(
        base=loaded.digest,
        digest=await asyncio.to_thread(digest_of, candidate),
        changes=[one.view() for one in differences],
        warnings=[warning for one in differences if (warning := _warning(one)) is not None],
        policy=loaded.document,
    )


async def apply_policy(
    context: AppContext, caller: Caller, environment: str, request: PolicyApply
) -> PolicyApplied:
    """Change the environment so that its policy is exactly the document, and store the policy as a revision.

    All changes are made in one transaction, or none. If the environment already has the policy, nothing is changed.

    Raises:
        FieldErrors: 400, the document is invalid, or `verify_agents` rejects its agents.
        ApiError: 409, the digest of the current policy is no longer the `base` of the request; the detail lists the
            changes since then if they are known.
        PlanLimitExceeded: The plan of the organization allows no further agents.
    """
    await verify(request.policy)
    async with transaction_as(context, caller) as session:
        return await apply_in_transaction(
            context, session, caller, environment, request.policy, request.base, request.message or ""
        )


async def restore_revision(
    context: AppContext, caller: Caller, environment: str, revision_id: str, request: RevisionRestore
) -> PolicyApplied:
    """Apply the policy of an earlier revision again, and store it as a new revision.

    If the environment already has this policy, nothing is changed.

    Raises:
        ApiError: 404, the environment has no such revision; 409, the digest of the current policy is no longer the
            `base` of the request.
        PlanLimitExceeded: The plan of the organization allows no further agents.
    """
    async with transaction_as(context, caller) as session:
        revision = await _get_revision(session, caller, environment, revision_id)
        message = request.message or f"Restore revision {revision.number}"
        document = read_document(revision)
        return await apply_in_transaction(
            context, session, caller, environment, document, request.base, message, restores=revision.number
        )


async def apply_in_transaction(
    context: AppContext,
    session: AsyncSession,
    caller: Caller,
    environment: str,
    candidate: PolicyDocument,
    base: str,
    message: str,
    *,
    restores: int | None = None,
) -> PolicyApplied:
    """Apply a valid document as `apply_policy` does, but in the caller's open transaction.

    `restores` is the number of the revision that contains the document; None for a new document.
    """
    organization_id = caller.organization_id
    loaded = await load_policy(session, organization_id, environment)
    if restores is None:
        verify_agents(loaded, candidate)
    differences = await asyncio.to_thread(compare, loaded.identified, candidate)
    latest = await find_latest_revision(session, organization_id, environment)
    if not differences:
        return PolicyApplied(applied=False, revision=latest.number if latest else None, changes=[])
    if base != loaded.digest:
        raise ApiError(409, await _describe_conflict(session, caller, environment, loaded, base))
    number = latest.number if latest else 0
    if latest is None or latest.digest != loaded.digest:
        number += 1
        before = PolicyDocument(version=VERSION) if latest is None else read_document(latest)
        changes = [one.view() for one in await asyncio.to_thread(compare, before, loaded.document)]
        _store(session, caller, environment, number, loaded, changes, OTHER_CHANGES)
    await PolicyWriter(context, session, caller, environment, loaded, candidate).write(differences)
    applied = await load_policy(session, organization_id, environment)
    changes = [one.view() for one in differences]
    revision = _store(session, caller, environment, number + 1, applied, changes, message, restores)
    kind = "policy.applied" if restores is None else "policy.restored"
    details = {"revision": revision.number, "message": message, "restores": restores}
    audit.record(session, caller, kind, revision.id, environment=environment, changes=details)
    await session.flush()
    return PolicyApplied(applied=True, revision=number + 1, changes=changes)


async def list_revisions(
    session: AsyncSession, caller: Caller, environment: str, page: Page, number: int | None = None
) -> Found[PolicyRevision]:
    """Return the revisions of an environment, newest first; with `number`, only the revision with this number."""
    query = select(PolicyRevision).where(
        PolicyRevision.organization_id == caller.organization_id, PolicyRevision.environment == environment
    )
    if number is not None:
        query = query.where(PolicyRevision.number == number)
    return await find_page(session, query, PolicyRevision, page)


async def get_revision(
    session: AsyncSession, caller: Caller, environment: str, revision_id: str
) -> RevisionView:
    """Return the revision with this id.

    Raises:
        ApiError: 404 if the environment has no revision with this id.
    """
    revision = await _get_revision(session, caller, environment, revision_id)
    return RevisionView(
        **serialize_revision(revision).model_dump(),
        policy=read_document(revision),
        changes=read_changes(revision),
    )


def read_changes(revision: PolicyRevision) -> Sequence[ChangeView]:
    """Return the changes of a revision compared with the revision before it."""
    return _CHANGES.validate_python(strict_json.loads_own(revision.changes))


def serialize_revision(revision: PolicyRevision) -> RevisionSummary:
    """Return the list entry of a revision, without the policy and the changes."""
    return RevisionSummary.model_validate(revision, from_attributes=True)


async def evaluate_calls(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    policy: PolicyDocument | None,
    calls: Sequence[PolicyCall],
) -> Sequence[JudgementView]:
    """Return the results of a policy for calls; of the current policy if `policy` is None.

    Raises:
        FieldErrors: 400, the policy is invalid, or the agent in a call is not the name or id of exactly one of its
            agents.
    """
    if policy is not None:
        await verify(policy)
    loaded = await load_policy(session, caller.organization_id, environment)
    moment = now(session)

    def evaluate() -> Sequence[JudgementView]:
        evaluator = PolicyEvaluator(policy or loaded.document, loaded.agent_ids)
        found = []
        for index, call in enumerate(calls):
            # Release the interpreter lock. Otherwise, checks would wait for it until Python's switch interval is over.
            time.sleep(0)
            found.append(_evaluate(evaluator, index, call, moment))
        return found

    return await asyncio.to_thread(evaluate)


def _evaluate(evaluator: PolicyEvaluator, index: int, call: PolicyCall, moment: datetime) -> JudgementView:
    agent_id = evaluator.agent_id(call.agent)
    if agent_id is None:
        message = f"{call.agent!r} is not the name or id of an agent of the policy, or several agents have this name"
        raise FieldErrors({f"calls.{index}.agent": [message]})
    judged = evaluator.judge(agent_id, call.action, call.context, call.run_id, call.now or moment)
    return serialize_judgement(judged)


def serialize_judgement(judged: Judgement) -> JudgementView:
    """Return the result of a policy for a response of the API."""
    terms = judged.terms
    approval = None
    if terms is not None:
        approval = JudgementTermsView(
            quorum=terms.quorum,
            ttl=terms.seconds,
            approvers=None if terms.approvers is None else sorted(terms.approvers),
            separation_of_duties=terms.separation_of_duties,
        )
    return JudgementView(
        outcome=judged.outcome.label,
        reason_code=judged.reason_code,
        reason=judged.reason,
        rule=judged.rule,
        approval=approval,
    )


async def _get_revision(
    session: AsyncSession, caller: Caller, environment: str, revision_id: str
) -> PolicyRevision:
    revision = await find_revision(session, caller.organization_id, environment, revision_id)
    if revision is None:
        raise not_found("Revision")
    return revision


def verify_agents(loaded: LoadedPolicy, candidate: PolicyDocument) -> None:
    """Verify that each agent of a candidate policy identifies exactly one current agent or a new agent.

    Raises:
        FieldErrors: 400, an agent of the candidate has an id that no agent of the environment has, or it has no id, and
            several agents of the environment have its name.
    """
    errors: dict[str, list[str]] = {}
    by_name: dict[str, list[str]] = {}
    for agent_id, row in loaded.agents.items():
        by_name.setdefault(row.name, []).append(agent_id)
    for index, agent in enumerate(candidate.agents):
        same = by_name.get(agent.name, [])
        if agent.id is not None and agent.id not in loaded.agents:
            errors[f"agents.{index}.id"] = [
                f"{agent.id!r} is not the id of an agent of this environment: omit it"
            ]
        elif agent.id is None and len(same) > 1:
            message = (
                f"several agents have the name {agent.name!r}: add the id of one of them, {', '.join(same)}"
            )
            errors[f"agents.{index}.name"] = [message]
    if errors:
        raise FieldErrors(errors)


def _store(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    number: int,
    policy: LoadedPolicy,
    changes: Sequence[ChangeView],
    message: str,
    restores: int | None = None,
) -> PolicyRevision:
    revision = PolicyRevision(
        id=new_id(),
        organization_id=caller.organization_id,
        environment=environment,
        number=number,
        document=strict_json.dumps(policy.document.model_dump()),
        digest=policy.digest,
        changes=strict_json.dumps([one.model_dump() for one in changes]),
        message=message,
        restores=restores,
        created_by=caller.user_id,
        created_at=now(session),
    )
    session.add(revision)
    return revision


async def _describe_conflict(
    session: AsyncSession, caller: Caller, environment: str, loaded: LoadedPolicy, base: str
) -> str:
    """Return an error message that lists the changes since the policy with the digest `base`.

    The message lists no changes if no revision contains that policy.
    """
    message = "The policy changed since it was planned"
    revision = await find_revision_by_digest(session, caller.organization_id, environment, base)
    if revision is not None:
        differences = await asyncio.to_thread(compare, read_document(revision), loaded.document)
        changes = [one.view() for one in differences]
        shown = [f"{one.operation} {one.resource} {one.name!r}" for one in changes[:MAX_SHOWN]]
        more = f" and {len(changes) - MAX_SHOWN} more" if len(changes) > MAX_SHOWN else ""
        message += f": {', '.join(shown)}{more}"
    return f"{message}; plan again"


def _warning(one: Difference) -> str | None:
    if one.resource == "agent" and one.after is None:
        return (
            f"Deleting agent {one.name!r} revokes its API keys and cancels its approval requests. Restoring a revision "
            "creates a new agent with a new id and without keys"
        )
    if one.resource == "budget" and one.before is not None and (one.after is None or one.replaces_budget):
        return (
            f"The totals of budget {one.name!r} are deleted, and restoring a revision does not restore them"
        )
    return None
