"""Database queries of checks: find, create and count approval requests, and store decisions for retries.

If the response to a check that consumed an approval is lost, the client retries with the same `Idempotency-Key` and
body. The retry returns the same decision and does not consume a second approval.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import bindparam
from sqlmodel import case, col, delete, func, literal, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.events import emit_approval_event
from toolgate_service.approvals.models import CONSUMED, DENIED, PENDING, Approval, ruled_permission_id
from toolgate_service.approvals.policy import Terms, current_terms, store_terms, stored_terms
from toolgate_service.approvals.repository import find_duplicate
from toolgate_service.approvals.service import expire_duplicate
from toolgate_service.checks.decide import ApprovalRequired
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext
from toolgate_service.core.ids import new_id
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import now
from toolgate_service.logs.counts import count_request
from toolgate_service.logs.models import IdempotencyKey
from toolgate_service.permissions.models import Permission

#: Maximum number of matching approval requests that a check reads, newest first. A pending or approved request that the
#: check can use is always among them: while there is one, no check creates a newer one.
MAX_MATCHING = 20

_OF_RUN = (
    col(Approval.organization_id) == bindparam("organization_id"),
    col(Approval.environment) == bindparam("environment"),
    col(Approval.agent_id) == bindparam("agent_id"),
    col(Approval.action) == bindparam("action"),
    col(Approval.run_id) == bindparam("run_id"),
)

#: SQL condition for requests that match a check, regardless of `call_id`; `match_values` returns its bind parameters
MATCHES = (
    *_OF_RUN,
    col(Approval.digest) == bindparam("digest"),
    col(Approval.permission_id) == bindparam("permission_id"),
)

_MATCHING = (
    select(Approval)
    .where(
        *MATCHES,
        or_(
            col(Approval.call_id) == bindparam("call_id"),
            col(Approval.id) == bindparam("approval_id"),
        ),
    )
    .order_by(
        (col(Approval.id) == bindparam("approval_id")).desc(),
        col(Approval.created_at).desc(),
        col(Approval.id).desc(),
    )
    .limit(MAX_MATCHING)
)
#: The organization's lock serializes the decisions. The row locks also block writers that do not take this lock: the
#: deletion of old requests, and long polls, which store until when a client waits.
_MATCHING_LOCKED = _MATCHING.with_for_update()

#: Queries for consumed requests of a call: one by the `call_id` that created the request, one by the `call_id` that
#: consumed it. They are separate, because each uses its own index.
_CONSUMED_CALLS = tuple(
    # The context (the arguments of the call) is not compared, because a call may run only once, even if a later check
    # with the same `call_id` contains other arguments.
    select(Approval.id).where(
        *_OF_RUN,
        call_id == bindparam("call_id"),
        # SQLite uses the partial index only if the statement contains the value as a literal.
        col(Approval.status) == literal(CONSUMED, literal_execute=True),
    )
    for call_id in (col(Approval.call_id), col(Approval.consumed_call_id))
)

_PERMISSION = (
    select(Agent, Permission)
    .outerjoin(Permission, col(Permission.id) == bindparam("permission_id"))
    .where(col(Agent.id) == bindparam("agent_id"))
)

_DENIED = (
    select(Approval)
    .where(
        *MATCHES,
        col(Approval.status) == literal(DENIED, literal_execute=True),
        col(Approval.decided_at) > bindparam("since"),
    )
    .order_by(col(Approval.decided_at).desc())
    .limit(1)
)

_COUNT_PENDING = select(
    # Compare the expiry here and not in WHERE: with the condition in WHERE, SQLite would scan an index that contains
    # the expiry times of all organizations.
    func.count(case((col(Approval.expires_at) > bindparam("now"), 1)))
).where(
    col(Approval.organization_id) == bindparam("organization_id"),
    col(Approval.environment) == bindparam("environment"),
    col(Approval.agent_id) == bindparam("agent_id"),
    # SQLite uses the partial index only if the statement contains the value as a literal.
    col(Approval.status) == literal(PENDING, literal_execute=True),
)

#: time after a check during which a retry with the same idempotency key returns the stored decision
IDEMPOTENCY_LIFETIME = timedelta(minutes=10)


def match_values(auth: AuthContext, request: CheckRequest) -> dict[str, str | None]:
    """Return the bind parameters of `MATCHES` for a check."""
    return {
        "organization_id": auth.organization_id,
        "environment": auth.environment,
        "agent_id": auth.agent_id,
        "action": request.action,
        "digest": request.digest,
        "permission_id": auth.permission_id or ruled_permission_id(request.action),
        "run_id": request.run_id or "",
    }


async def find_matching(
    session: AsyncSession, auth: AuthContext, request: CheckRequest
) -> Sequence[Approval]:
    """Return the approval requests that match a check: first the one with the check's `approval_id`, then newest first.

    A request with a `call_id` matches only checks that send the same `call_id`, or the id of the request.
    """
    values = match_values(auth, request)
    values |= {"call_id": request.call_id or "", "approval_id": request.approval_id or ""}
    # A dry run takes no row locks, because its transaction is read-only.
    query = _MATCHING if request.dry_run else _MATCHING_LOCKED
    return (await session.exec(query, params=values)).all()


async def is_call_consumed(session: AsyncSession, auth: AuthContext, request: CheckRequest) -> bool:
    """Return whether a call with this `call_id` consumed an approval before."""
    values = match_values(auth, request) | {"call_id": request.call_id}
    for query in _CONSUMED_CALLS:
        if (await session.exec(query, params=values)).first() is not None:
            return True
    return False


async def create_request(
    session: AsyncSession,
    settings: Settings,
    auth: AuthContext,
    request: CheckRequest,
    decision: ApprovalRequired,
) -> str | None:
    """Create a pending request for a check and return its id; a dry run creates no request, and returns None.

    The request expires after the time in the permission. If the permission contains no time, or there is no permission,
    the time in the settings of the gateway applies. The rules that require the approval can shorten this time.
    """
    if request.dry_run:
        return None
    agent, permission = await _load_permission(session, auth)
    seconds = (permission and permission.approval_ttl_seconds) or settings.approval_ttl_seconds
    if decision.terms.ttl_seconds is not None:
        seconds = min(seconds, decision.terms.ttl_seconds)
    approval = new_request(session, auth, request, seconds=seconds)
    approval.rule_id, approval.budget_id = decision.rule_id, decision.budget_id
    store_terms(approval, current_terms(permission, agent).stricter(Terms.of_rules(decision.terms)))
    if permission is not None:
        approval.max_amount, approval.amount_required = permission.max_amount, permission.amount_required
    # Send the reminder `approval_reminder_seconds` before the request expires, but not before the last quarter of its
    # lifetime.
    ahead = min(settings.approval_reminder_seconds, seconds / 4)
    approval.remind_at = approval.expires_at - timedelta(seconds=ahead)
    await expire_duplicate(session, approval)
    # A pending request with edited arguments is not among the matching requests if many newer requests match.
    if (duplicate := await find_duplicate(session, approval)) is not None:
        return duplicate.id
    session.add(approval)
    await session.flush()
    tenant = (approval.organization_id, approval.environment)
    await count_request(session, tenant, approval.agent_id, approval.action, approval.created_at)
    await emit_approval_event(session, "requested", approval)
    return approval.id


async def tighten_terms(
    session: AsyncSession, auth: AuthContext, approval: Approval, decision: ApprovalRequired
) -> None:
    """Tighten the approval rules and limits of a pending request for which another check has arrived.

    For each approval rule and limit, the strictest value is stored: the value in the request, the current value in the
    permission, or the value in the policy rules that now require the approval. These policy rules can also shorten the
    time until the request expires.
    """
    terms = Terms.of_rules(decision.terms)
    if decision.terms.ttl_seconds is not None:
        end = approval.created_at + timedelta(seconds=decision.terms.ttl_seconds)
        approval.expires_at = min(approval.expires_at, end)
        session.add(approval)
    agent, permission = await _load_permission(session, auth)
    before = (stored_terms(approval), approval.max_amount, bool(approval.amount_required))
    maximum = None if permission is None else permission.max_amount
    limits = [limit for limit in (approval.max_amount, maximum) if limit is not None]
    after = (
        current_terms(permission, agent).stricter(before[0]).stricter(terms),
        min(limits, default=None),
        before[2] or (permission is not None and permission.amount_required),
    )
    if after != before:
        store_terms(approval, after[0])
        _, approval.max_amount, approval.amount_required = after
        session.add(approval)


async def _load_permission(session: AsyncSession, auth: AuthContext) -> tuple[Agent, Permission | None]:
    params = {"agent_id": auth.agent_id, "permission_id": auth.permission_id}
    agent, permission = (await session.exec(_PERMISSION, params=params)).one()
    return agent, permission


def new_request(session: AsyncSession, auth: AuthContext, request: CheckRequest, *, seconds: int) -> Approval:
    """Return a new approval request for a check, without adding it to the session.

    `seconds` is the time after which the request expires.
    """
    if auth.agent_id is None:
        raise RuntimeError("a check without agent is denied before a request is created")
    moment = now(session)
    return Approval(
        id=new_id(),
        organization_id=auth.organization_id,
        environment=auth.environment,
        agent_id=auth.agent_id,
        permission_id=auth.permission_id or ruled_permission_id(request.action),
        action=request.action,
        context=request.canonical,
        digest=request.digest,
        run_id=request.run_id or "",
        call_id=request.call_id or "",
        key_id=auth.key_id,
        reason=request.reason,
        last_asked_at=moment,
        created_at=moment,
        expires_at=moment + timedelta(seconds=seconds),
    )


async def find_recent_denial(
    session: AsyncSession, settings: Settings, auth: AuthContext, request: CheckRequest
) -> Approval | None:
    """Return the approval request for the same call that was rejected last.

    Return None if no request was rejected within the last `denial_cache_seconds` seconds.
    """
    # Ignore `call_id`, so that an agent cannot avoid the denial by repeating the call with a new `call_id`.
    since = now(session) - timedelta(seconds=settings.denial_cache_seconds)
    return (await session.exec(_DENIED, params=match_values(auth, request) | {"since": since})).first()


async def has_free_place(session: AsyncSession, settings: Settings, auth: AuthContext) -> bool:
    """Return whether the agent has fewer pending requests than `pending_per_agent`."""
    values = {
        "organization_id": auth.organization_id,
        "environment": auth.environment,
        "agent_id": auth.agent_id,
        "now": now(session),
    }
    return (await session.exec(_COUNT_PENDING, params=values)).one() < settings.pending_per_agent


@dataclass(frozen=True, slots=True)
class Attempt:
    """Idempotency key of a check and fingerprint of its body.

    A check is a retry of an earlier check only if both values equal those of the earlier check.

    Attributes:
        key: Value of the header `Idempotency-Key`.
        fingerprint: SHA-256 digest of the bytes that identify retries (`CheckRequest.identity`).
    """

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str | None, raw: bytes) -> "Attempt | None":
        """Return the attempt for an idempotency key and the bytes that identify retries; None if there is no key."""
        return cls(key, hashlib.sha256(raw).hexdigest()) if key else None


async def load_idempotent(
    session: AsyncSession, auth: AuthContext, attempt: Attempt | None, now: datetime
) -> str | None:
    """Return the decision id of an earlier check with the same key and fingerprint; None if there was none."""
    if attempt is None:
        return None
    query = select(IdempotencyKey.answer).where(
        IdempotencyKey.organization_id == auth.organization_id,
        IdempotencyKey.environment == auth.environment,
        IdempotencyKey.surface == "check",
        IdempotencyKey.key == attempt.key,
        IdempotencyKey.fingerprint == attempt.fingerprint,
        IdempotencyKey.expires_at > now,
    )
    answer = (await session.exec(query)).first()
    return None if answer is None else answer.decode()


async def store_idempotent(
    session: AsyncSession, auth: AuthContext, attempt: Attempt | None, decision_id: str, now: datetime
) -> None:
    """Store the decision id for retries, in the transaction that consumes the approval or reserves the amounts."""
    if attempt is None:
        return
    # Delete and insert the row. An update would fail if the retention job deleted an expired row with this key at the
    # same time.
    await session.exec(
        delete(IdempotencyKey).where(
            col(IdempotencyKey.organization_id) == auth.organization_id,
            col(IdempotencyKey.environment) == auth.environment,
            col(IdempotencyKey.surface) == "check",
            col(IdempotencyKey.key) == attempt.key,
        )
    )
    session.add(
        IdempotencyKey(
            organization_id=auth.organization_id,
            environment=auth.environment,
            surface="check",
            key=attempt.key,
            fingerprint=attempt.fingerprint,
            answer=decision_id.encode(),
            created_at=now,
            expires_at=now + IDEMPOTENCY_LIFETIME,
        )
    )
