"""Writing down what came of attempts (decisions §10)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.storage.database import now
from toolgate_service.webhooks.claims import Attempt
from toolgate_service.webhooks.endings import disable
from toolgate_service.webhooks.kinds import TRIAL
from toolgate_service.webhooks.models import DELIVERED, FAILED, PENDING, Delivery, Webhook
from toolgate_service.webhooks.schedule import next_attempt
from toolgate_service.webhooks.sender import Outcome

Result: TypeAlias = tuple[Attempt, Outcome]

GONE = "the receiver answered 410 Gone"
SILENT = "nothing could be delivered for three days"


async def record(session: AsyncSession, results: Sequence[Result]) -> None:
    """Write down what came of attempts; a webhook whose receiver takes nothing is switched off.

    Args:
        session: a write transaction.
        results: each attempt with what came of it.
    """
    if not results:
        return
    webhooks = await _locked(session, {attempt.webhook_id for attempt, _ in results})
    # One that was deleted may be removed, with its old deliveries, while somebody's retry of one is under way.
    results = [(attempt, outcome) for attempt, outcome in results if attempt.webhook_id in webhooks]
    for attempt, outcome in results:
        if outcome.delivered:
            await _delivered(session, webhooks[attempt.webhook_id], attempt, outcome)
    for attempt, outcome in results:
        if not outcome.delivered:
            await _failed(session, webhooks[attempt.webhook_id], attempt, outcome)


async def _locked(session: AsyncSession, ids: set[str]) -> Mapping[str, Webhook]:
    # Before their deliveries, as whoever switches a webhook off does, and in one order: nobody waits in a circle. Not
    # so tightly that an event could not be written down meanwhile.
    query = (
        select(Webhook)
        .where(col(Webhook.id).in_(ids))
        .order_by(col(Webhook.id))
        .with_for_update(key_share=True)
    )
    return {webhook.id: webhook for webhook in (await session.exec(query)).all()}


async def _delivered(session: AsyncSession, webhook: Webhook, attempt: Attempt, outcome: Outcome) -> None:
    moment = now(session)
    webhook.last_success_at = moment
    session.add(webhook)
    # Whatever has been said of it meanwhile: the receiver has it.
    await session.exec(
        update(Delivery)
        .where(col(Delivery.id) == attempt.delivery_id)
        .values(
            status=DELIVERED, delivered_at=moment, next_attempt_at=None, **_tried(moment, attempt, outcome)
        )
    )


async def _failed(session: AsyncSession, webhook: Webhook, attempt: Attempt, outcome: Outcome) -> None:
    moment, again = now(session), None
    if attempt.kind != TRIAL:
        again = next_attempt(moment, attempt.attempts + 1, attempt.event_made, outcome.retry_after)
    await session.exec(
        update(Delivery)
        # What was ended meanwhile, or delivered by another gateway, stays so.
        .where(col(Delivery.id) == attempt.delivery_id, col(Delivery.status) == PENDING)
        .values(
            status=PENDING if again else FAILED, next_attempt_at=again, **_tried(moment, attempt, outcome)
        )
    )
    if attempt.kind == TRIAL:
        return
    if outcome.gone:
        await disable(session, webhook, GONE)
    # A single attempt is one that somebody asked for, or the first after the gateway stood still for days.
    elif again is None and attempt.attempts > 0 and _silent_since(webhook, attempt):
        await disable(session, webhook, SILENT)


def _silent_since(webhook: Webhook, attempt: Attempt) -> bool:
    return webhook.last_success_at is None or webhook.last_success_at < attempt.event_made


def _tried(moment: datetime, attempt: Attempt, outcome: Outcome) -> dict[str, Any]:
    return {
        "attempts": attempt.attempts + 1,
        "claimed_until": None,
        "response_code": outcome.code,
        "error": outcome.error,
        "last_attempt_at": moment,
    }
