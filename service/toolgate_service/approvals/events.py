"""Webhook events about approval requests."""

from collections.abc import Sequence
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.schemas import serialize_approvals
from toolgate_service.webhooks.events import emit_lazy


async def emit_approval_event(session: AsyncSession, change: str, *approvals: Approval) -> None:
    """Write one webhook event `approval.<change>` for each request, in the transaction that changes the requests.

    All requests must belong to one organization and one environment.
    """
    if not approvals:
        return

    # Pass a function instead of the serialized requests: the serialization takes three queries, and is needed only if a
    # webhook subscribes to the event.
    async def serialize() -> Sequence[dict[str, Any]]:
        return [view.model_dump() for view in await serialize_approvals(session, approvals)]

    first = approvals[0]
    await emit_lazy(session, first.organization_id, first.environment, f"approval.{change}", serialize)
