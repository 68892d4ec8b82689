"""Telling of what becomes of approvals, in the transaction in which it does (decisions §10)."""

from collections.abc import Sequence
from typing import Any

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.views import views
from toolgate_service.webhooks.outbox import emit_made


async def tell(session: AsyncSession, what: str, *approvals: Approval) -> None:
    """Write an event about approvals of one organization and environment.

    Args:
        session: the write transaction in which they changed.
        what: became of them: ``requested``, ``approved``, ``reminder`` …
        approvals: as they are now.
    """
    if not approvals:
        return

    # Where nobody wants to know, a held check need not look for what stands beside its request.
    async def shown() -> Sequence[dict[str, Any]]:
        return [view.model_dump() for view in await views(session, approvals)]

    first = approvals[0]
    await emit_made(session, first.organization_id, first.environment, f"approval.{what}", shown)
