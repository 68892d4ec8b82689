"""How webhooks are switched off, and what becomes of what was on its way to them (decisions §10)."""

from sqlmodel import col, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.audit import service as audit
from toolgate_service.storage.database import now
from toolgate_service.webhooks.models import FAILED, PENDING, Delivery, Webhook

SWITCHED_OFF = "the webhook was switched off"
DELETED = "the webhook was deleted"


async def end_pending(session: AsyncSession, webhook_id: str, why: str) -> None:
    """Give up what is on its way to a webhook."""
    await session.exec(
        update(Delivery)
        .where(col(Delivery.webhook_id) == webhook_id, col(Delivery.status) == PENDING)
        .values(status=FAILED, error=why, next_attempt_at=None, claimed_until=None)
    )


async def disable(session: AsyncSession, webhook: Webhook, reason: str) -> None:
    """Switch a webhook off because its receiver takes nothing, so that its owner sees it."""
    if not webhook.is_active:
        return
    webhook.is_active, webhook.disabled_reason, webhook.disabled_at = False, reason, now(session)
    session.add(webhook)
    await end_pending(session, webhook.id, SWITCHED_OFF)
    audit.record_outside(
        session,
        webhook.organization_id,
        "webhook.disabled",
        resource_id=webhook.id,
        environment=webhook.environment,
        changes={"reason": reason},
    )
