"""Erasure of the contexts of log entries, decisions and approval requests."""

from datetime import timedelta
from typing import Any

import sqlalchemy
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.access_requests.models import AccessRequest, AccessRequestItem
from toolgate_service.approvals.models import OPEN, Approval
from toolgate_service.audit.service import Actor, record
from toolgate_service.core.errors import ApiError
from toolgate_service.db.database import now
from toolgate_service.db.models import TEST
from toolgate_service.decisions.models import Decision
from toolgate_service.logs.models import KEY_LIFETIME, IdempotencyKey, LogEntry
from toolgate_service.organizations.models import Environment
from toolgate_service.transparency.chunks import add_leaf
from toolgate_service.transparency.leaves import ERASURE, SALT_DIGITS, build_leaf

#: maximum difference between the times at which a log entry and its idempotency key were stored
_SAME_TIME = timedelta(seconds=1)


async def erase_context(
    session: AsyncSession, caller: Actor, environment: str, kind: str, row: Decision | LogEntry | Approval
) -> None:
    """Erase the context of a row, and the salt of the context, in a write transaction.

    The digest of the context in the row is erased too; for an approval request, also the agent's reason and the bodies
    of access requests that repeat the context. The leaf of the row in the transparency log and the proofs for this leaf
    stay valid. Nothing happens if the context was erased before.

    Raises:
        ApiError: 409, the row is an approval request that is pending, or approved and not used yet.
    """
    salt = row.salt or ""
    if isinstance(row, Approval):
        if row.status in OPEN:
            raise ApiError(
                409,
                f"The approval request is {row.status}: the context can be erased only after the "
                "request is closed",
            )
        changes: dict[str, object] = {"context": "{}", "digest": "", "reason": None}
    elif isinstance(row, Decision):
        changes = {"context": None, "context_digest": ""}
    else:
        changes = {"context": None}
        if row.context is not None:
            await _erase_copies(session, row)
    if len(salt) <= SALT_DIGITS and all(getattr(row, name) == value for name, value in changes.items()):
        return
    changes["salt"] = salt[:SALT_DIGITS] or None
    model: Any = type(row)
    this = [
        getattr(model, column.name) == getattr(row, column.name) for column in model.__table__.primary_key
    ]
    await (await session.connection()).execute(sqlalchemy.update(model).where(*this).values(changes))
    if isinstance(row, Approval):
        await _erase_submissions(session, row)
    organization_id, moment = caller.organization_id, now(session)
    leaf = build_leaf(ERASURE, organization_id, environment, moment, id=row.id, of=kind, by=caller.user_id)
    await add_leaf(session, leaf)
    record(session, caller, f"{kind}.erased", row.id, environment=environment)


async def _erase_copies(session: AsyncSession, entry: LogEntry) -> None:
    """Delete the stored response to the log request, and subtract the context's size from the size of a test log.

    The response is stored with the idempotency key of the request, and contains the context.
    """
    organization_id, environment = entry.organization_id, entry.environment
    stored = (
        col(IdempotencyKey.organization_id) == organization_id,
        col(IdempotencyKey.environment) == environment,
        col(IdempotencyKey.surface) == "log",
    )
    # The key was stored in the same transaction as the entry, which does not contain the key.
    expires = entry.created_at + KEY_LIFETIME
    near = col(IdempotencyKey.expires_at).between(expires - _SAME_TIME, expires + _SAME_TIME)
    answers = select(IdempotencyKey.key, IdempotencyKey.answer).where(*stored, near)
    keys = [key for key, answer in (await session.exec(answers)).all() if entry.id.encode() in answer]
    connection = await session.connection()
    if keys:
        await connection.execute(
            sqlalchemy.delete(IdempotencyKey).where(*stored, col(IdempotencyKey.key).in_(keys))
        )
    if environment == TEST:
        held, size = col(Environment.log_bytes), len((entry.context or "").encode())
        await connection.execute(
            sqlalchemy.update(Environment)
            .where(col(Environment.organization_id) == organization_id, col(Environment.name) == TEST)
            .values(log_bytes=sqlalchemy.case((held > size, held - size), else_=0))
        )


async def _erase_submissions(session: AsyncSession, approval: Approval) -> None:
    """Erase the submitted bodies of the access requests that refer to an approval request.

    The bodies repeat the context of the approval request.
    """
    items = select(AccessRequestItem.request_id).where(
        AccessRequestItem.organization_id == approval.organization_id,
        AccessRequestItem.environment == approval.environment,
        AccessRequestItem.approval_id == approval.id,
    )
    statement = (
        sqlalchemy.update(AccessRequest)
        .where(
            col(AccessRequest.organization_id) == approval.organization_id,
            col(AccessRequest.environment) == approval.environment,
            col(AccessRequest.id).in_(items),
        )
        .values(submission="{}")
    )
    await (await session.connection()).execute(statement)
