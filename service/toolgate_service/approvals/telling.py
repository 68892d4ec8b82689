"""Telling of what becomes of approvals, in the transaction in which it does (decisions §10)."""

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.views import views
from toolgate_service.webhooks import outbox
from toolgate_service.webhooks.outbox import subscribers


async def tell(session: AsyncSession, what: str, *approvals: Approval) -> None:
    """Write an event about approvals of one organization and environment.

    Args:
        session: the write transaction in which they changed.
        what: became of them: ``requested``, ``approved``, ``reminder`` …
        approvals: as they are now.
    """
    if not approvals:
        return
    kind = f"approval.{what}"
    tenant = (approvals[0].organization_id, approvals[0].environment)
    # Asked first: where nobody wants to know, a held check need not look for what stands beside its request.
    webhooks = await subscribers(session, *tenant, kind)
    if webhooks:
        shown = [view.model_dump() for view in await views(session, approvals)]
        await outbox.tell(session, *tenant, kind, shown, webhooks)
