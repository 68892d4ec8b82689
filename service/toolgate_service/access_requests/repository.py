"""Database queries for access requests."""

from collections.abc import Iterable, Mapping, Sequence

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.access_requests.models import AccessRequest, AccessRequestItem
from toolgate_service.approvals.models import APPROVED, PENDING, Approval, ApprovalVote
from toolgate_service.context import AuthContext
from toolgate_service.core import strict_json

#: maximum number of characters of a displayed justification
MAX_JUSTIFICATION = 1_000
#: maximum number of requests in a chain of successors that `load_approvals` reads, including the first one
MAX_EDITS = 100


async def find_access_request(
    session: AsyncSession, organization_id: str, environment: str, request_id: str
) -> AccessRequest | None:
    """Return the access request of an environment with this id, or None."""
    query = select(AccessRequest).where(
        AccessRequest.id == request_id,
        AccessRequest.organization_id == organization_id,
        AccessRequest.environment == environment,
    )
    return (await session.exec(query)).first()


async def find_by_key(session: AsyncSession, auth: AuthContext, key: str) -> AccessRequest | None:
    """Return the access request that the same API key submitted with this idempotency key, or None."""
    query = select(AccessRequest).where(
        AccessRequest.organization_id == auth.organization_id,
        AccessRequest.environment == auth.environment,
        AccessRequest.key_id == auth.key_id,
        col(AccessRequest.idempotency_key) == key,
        # A partial index is used only if the statement contains its condition.
        col(AccessRequest.idempotency_key).is_not(None),
    )
    return (await session.exec(query)).first()


async def list_items(session: AsyncSession, request: AccessRequest) -> Sequence[AccessRequestItem]:
    """Return the items of an access request in their order."""
    query = (
        select(AccessRequestItem)
        .where(
            AccessRequestItem.request_id == request.id,
            AccessRequestItem.organization_id == request.organization_id,
            AccessRequestItem.environment == request.environment,
        )
        .order_by(col(AccessRequestItem.position))
    )
    return (await session.exec(query)).all()


async def is_submitted(session: AsyncSession, auth: AuthContext, evaluation_ids: Iterable[str]) -> bool:
    """Return whether an access request for one of these evaluations exists."""
    query = select(AccessRequestItem.evaluation_id).where(
        AccessRequestItem.organization_id == auth.organization_id,
        AccessRequestItem.environment == auth.environment,
        col(AccessRequestItem.evaluation_id).in_(evaluation_ids),
    )
    return (await session.exec(query)).first() is not None


async def load_approvals(
    session: AsyncSession, tenant: tuple[str, str], ids: Iterable[str]
) -> Mapping[str, Approval]:
    """Return approval requests and their successors, by id.

    When an approver edits a request, a new request (the successor) replaces it.
    """
    found: dict[str, Approval] = {}
    missing = set(ids)
    for _ in range(MAX_EDITS):
        if not missing:
            break
        query = select(Approval).where(
            Approval.organization_id == tenant[0],
            Approval.environment == tenant[1],
            col(Approval.id).in_(missing),
        )
        rows = (await session.exec(query)).all()
        found |= {row.id: row for row in rows}
        missing = {row.replaced_by for row in rows if row.replaced_by} - found.keys()
    return found


async def find_decided_callbacks(session: AsyncSession) -> Sequence[tuple[str, str, str]]:
    """Return the access requests whose callback is due: it was not sent yet, and no approval request is pending.

    Each access request is returned as the id of the organization, the name of the environment and its own id.
    """
    pending = (
        select(Approval.id)
        .join(AccessRequestItem, col(AccessRequestItem.approval_id) == Approval.id)
        .where(AccessRequestItem.request_id == AccessRequest.id, Approval.status == PENDING)
    )
    query = select(AccessRequest.organization_id, AccessRequest.environment, AccessRequest.id).where(
        col(AccessRequest.callback).is_not(None), ~pending.exists()
    )
    return (await session.exec(query)).all()


async def find_justifications(session: AsyncSession, approvals: Sequence[Approval]) -> Mapping[str, str]:
    """Return the business justifications that clients submitted, by the id of the approval request.

    `approvals` must not be empty, and all approval requests must belong to one environment. Texts are cut off after
    `MAX_JUSTIFICATION` characters.
    """
    query = (
        select(AccessRequestItem.approval_id, AccessRequest.submission)
        .join(AccessRequest, col(AccessRequest.id) == AccessRequestItem.request_id)
        .where(
            AccessRequestItem.organization_id == approvals[0].organization_id,
            AccessRequestItem.environment == approvals[0].environment,
            col(AccessRequestItem.approval_id).in_([one.id for one in approvals]),
        )
        .order_by(col(AccessRequest.created_at))
    )
    found = {}
    for approval_id, submission in (await session.exec(query)).all():
        match strict_json.loads_own(submission):
            case {"context": {"business_justification": str(text)}} if text.strip():
                found[approval_id] = text[:MAX_JUSTIFICATION]
    return found


async def count_votes(session: AsyncSession, approval: Approval) -> int:
    """Return the number of users who have approved a request."""
    query = select(func.count()).where(
        ApprovalVote.approval_id == approval.id,
        ApprovalVote.organization_id == approval.organization_id,
        ApprovalVote.environment == approval.environment,
        ApprovalVote.decision == APPROVED,
    )
    return (await session.exec(query)).one()
