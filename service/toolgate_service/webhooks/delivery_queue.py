"""Queue of webhook deliveries in the database.

A delivery is one event for one webhook. Each gateway claims deliveries that are due, sends them, and stores the
results.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, bindparam, text
from sqlmodel import col, literal, or_, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.audit import service as audit
from toolgate_service.core import strict_json
from toolgate_service.core.crypto import Vault
from toolgate_service.db.database import Database, now
from toolgate_service.db.models import Id, Timestamp
from toolgate_service.outbound.sender import SendResult
from toolgate_service.webhooks.events import TEST_EVENT, resource_name
from toolgate_service.webhooks.models import (
    DELIVERED,
    FAILED,
    PENDING,
    SIGNING,
    SLACK,
    SLACK_URL,
    Delivery,
    Event,
    Webhook,
)
from toolgate_service.webhooks.repository import DISABLED, fail_pending, load_secrets

#: Time for which a claim reserves a delivery for one gateway. It is longer than an attempt takes, so that another
#: gateway repeats the delivery only if the first one has crashed.
CLAIM_PERIOD = timedelta(seconds=15)

#: Maximum number of attempts that a gateway makes at the same time: in total, per organization and per webhook. The
#: limits keep a slow receiver from delaying deliveries to other receivers.
MAX_ATTEMPTS = 64
MAX_ATTEMPTS_PER_ORGANIZATION = 16
MAX_ATTEMPTS_PER_WEBHOOK = 4

#: Seconds to wait after the first, second, third and each further failed attempt. The last value repeats.
BACKOFF = (5, 30, 120, 600, 3600, 6 * 3600)
#: Maximum fraction by which a wait is randomly lengthened or shortened, so that retries are spread over time.
JITTER = 0.2
#: Time after an event during which the gateway repeats failed attempts to deliver the event.
RETRY_PERIOD = timedelta(days=3)
#: Maximum time by which a receiver can delay the next attempt with the header `Retry-After`.
MAX_RETRY_AFTER = timedelta(hours=6)

#: Fields of an event that only webhooks with `include_context` receive, because they contain the arguments of tool
#: calls.
CONTEXT_FIELDS = ("context", "approved_context", "reason")

#: Reasons for which the gateway disables a webhook. Users can see them.
GONE = "the receiver responded with 410 Gone"
UNREACHABLE = "no delivery succeeded for three days"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to deliver an event to a webhook. This gateway has claimed the delivery.

    Attributes:
        event_id: Id of the event, which the request contains in the header `webhook-id`.
        kind: Type of the event.
        attempts: Number of failed attempts before this one.
        is_slack: True if the event is sent as a Slack message.
        url: URL of the receiver; empty if the stored URL cannot be decrypted.
        body: The event as JSON.
        secrets: Secrets that sign the request; empty if none of them can be decrypted.
        claimed_at: Time of the claim, which is also the timestamp of the signature.
    """

    delivery_id: str
    organization_id: str
    webhook_id: str
    event_id: str
    kind: str
    event_created_at: datetime
    attempts: int
    is_slack: bool
    url: str
    body: str
    secrets: Sequence[str]
    claimed_at: datetime


AttemptResult: TypeAlias = tuple[Attempt, SendResult]


class _Capacity:
    """Counter of running attempts. It limits further attempts in total, per organization and per webhook."""

    def __init__(self, running: Sequence[Attempt]) -> None:
        self._total = len(running)
        self._organizations = Counter(attempt.organization_id for attempt in running)
        self._webhooks = Counter(attempt.webhook_id for attempt in running)

    @property
    def remaining(self) -> int:
        return MAX_ATTEMPTS - self._total

    def remaining_for(self, organization_id: str, webhook_id: str) -> int:
        return min(
            self.remaining,
            MAX_ATTEMPTS_PER_ORGANIZATION - self._organizations[organization_id],
            MAX_ATTEMPTS_PER_WEBHOOK - self._webhooks[webhook_id],
        )

    def running_for(self, organization_id: str, webhook_id: str) -> tuple[int, int]:
        return self._organizations[organization_id], self._webhooks[webhook_id]

    def use(self, organization_id: str, webhook_id: str, count: int) -> None:
        self._total += count
        self._organizations[organization_id] += count
        self._webhooks[webhook_id] += count


async def has_due_deliveries(database: Database) -> bool:
    """Return True if at least one delivery is due and not claimed. The query reads a single row of an index."""
    async with database.reading() as session:
        return (
            await session.exec(select(Delivery.id).where(*_due(now(session))).limit(1))
        ).first() is not None


async def claim_deliveries(
    session: AsyncSession, vault: Vault, running: Sequence[Attempt]
) -> Sequence[Attempt]:
    """Claim deliveries that are due, up to the limits for simultaneous attempts.

    Args:
        session: Session of a write transaction.
        vault: Vault that decrypts the secrets of the webhooks.
        running: Unfinished attempts of this gateway, which count against the limits.
    """
    capacity, claimed, moment = _Capacity(running), list[Delivery](), now(session)
    if capacity.remaining <= 0:
        return ()
    waiting = list(
        (await (await session.connection()).execute(_WAITING_WEBHOOKS, {"now": moment})).fetchall()
    )
    # Webhooks with few running attempts come first, in random order among equals, so that a receiver that does not
    # respond cannot delay other receivers, even if many of its deliveries are pending.
    random.shuffle(waiting)
    waiting.sort(key=lambda one: capacity.running_for(one.organization_id, one.id))
    for webhook_id, organization_id, is_active in waiting:
        count = capacity.remaining_for(organization_id, webhook_id)
        if count > 0 and not is_active:
            # The webhook is disabled, but an event was stored for it by a concurrent transaction. End its deliveries.
            await fail_pending(session, webhook_id, DISABLED)
        elif count > 0:
            found = await _claim_for_webhook(session, webhook_id, moment, count)
            capacity.use(organization_id, webhook_id, len(found))
            claimed += found
    return await _load_attempts(session, vault, claimed, moment)


async def release_deliveries(session: AsyncSession, attempts: Sequence[Attempt]) -> None:
    """Release the claims of unfinished attempts, so that another gateway can claim these deliveries immediately."""
    ids = [attempt.delivery_id for attempt in attempts]
    await session.exec(
        update(Delivery)
        .where(col(Delivery.id).in_(ids), col(Delivery.status) == PENDING)
        .values(claimed_until=None)
    )


async def record_results(session: AsyncSession, results: Sequence[AttemptResult]) -> None:
    """Store the results of attempts, and disable webhooks whose receivers accept no more deliveries.

    The session must belong to a write transaction.
    """
    if not results:
        return
    webhooks = await _lock_webhooks(session, {attempt.webhook_id for attempt, _ in results})
    # Ignore results for webhooks that no longer exist: a user may have deleted the webhook during the attempt, and the
    # retention job may have removed its rows.
    results = [(attempt, result) for attempt, result in results if attempt.webhook_id in webhooks]
    for attempt, result in results:
        if result.delivered:
            await _record_success(session, webhooks[attempt.webhook_id], attempt, result)
    for attempt, result in results:
        if not result.delivered:
            await _record_failure(session, webhooks[attempt.webhook_id], attempt, result)


def next_attempt(
    moment: datetime, attempts: int, event_created_at: datetime, retry_after: timedelta | None
) -> datetime | None:
    """Return the time of the next attempt; None if the `RETRY_PERIOD` is over.

    Args:
        moment: Current time.
        attempts: Number of failed attempts so far, at least 1.
        event_created_at: Time of the event, at which the `RETRY_PERIOD` starts.
        retry_after: Minimum time until the next attempt that the receiver requested; None if it requested none.
    """
    ends = event_created_at + RETRY_PERIOD
    if moment >= ends:
        return None
    seconds = BACKOFF[min(attempts, len(BACKOFF)) - 1]
    pause = timedelta(seconds=seconds * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - jitter is not secret
    if retry_after is not None:
        pause = max(pause, min(retry_after, MAX_RETRY_AFTER))
    # The last attempt takes place at the end of the retry period, even if the regular wait would be longer.
    return min(moment + pause, ends)


def event_body(payload: str, kind: str, *, include_context: bool) -> str:
    """Return the JSON of an event for one webhook. `CONTEXT_FIELDS` are removed unless `include_context` is True."""
    if include_context:
        return payload
    event = strict_json.loads_own(payload)
    match event:
        case {"data": dict(data)}:
            resource = data.get(resource_name(kind))
            if isinstance(resource, dict):
                for name in CONTEXT_FIELDS:
                    resource.pop(name, None)
    return strict_json.dumps(event)


async def _claim_for_webhook(
    session: AsyncSession, webhook_id: str, moment: datetime, count: int
) -> Sequence[Delivery]:
    query = (
        select(Delivery)
        .where(Delivery.webhook_id == webhook_id, *_due(moment))
        .order_by(col(Delivery.next_attempt_at))
        .limit(count)
        # Skip deliveries that another gateway is claiming now, instead of waiting for the locks of their rows.
        .with_for_update(skip_locked=True)
    )
    found = (await session.exec(query)).all()
    for delivery in found:
        delivery.claimed_until = moment + CLAIM_PERIOD
        session.add(delivery)
    return found


async def _load_attempts(
    session: AsyncSession, vault: Vault, deliveries: Sequence[Delivery], moment: datetime
) -> Sequence[Attempt]:
    if not deliveries:
        return ()
    event_ids = {delivery.event_id for delivery in deliveries}
    webhook_ids = {delivery.webhook_id for delivery in deliveries}
    events = {
        event.id: event for event in await session.exec(select(Event).where(col(Event.id).in_(event_ids)))
    }
    webhooks = {
        webhook.id: webhook
        for webhook in await session.exec(select(Webhook).where(col(Webhook.id).in_(webhook_ids)))
    }
    secrets = await load_secrets(session, vault, list(webhook_ids), SIGNING)
    slack = [webhook.id for webhook in webhooks.values() if webhook.kind == SLACK]
    urls = await load_secrets(session, vault, slack, SLACK_URL) if slack else {}
    return [
        _attempt(
            delivery,
            events[delivery.event_id],
            webhooks[delivery.webhook_id],
            urls,
            secrets.get(delivery.webhook_id, ()),
            moment,
        )
        for delivery in deliveries
    ]


def _attempt(
    delivery: Delivery,
    event: Event,
    webhook: Webhook,
    urls: Mapping[str, Sequence[str]],
    secrets: Sequence[str],
    moment: datetime,
) -> Attempt:
    is_slack = webhook.kind == SLACK
    return Attempt(
        delivery_id=delivery.id,
        organization_id=delivery.organization_id,
        webhook_id=delivery.webhook_id,
        event_id=event.id,
        kind=event.kind,
        event_created_at=event.created_at,
        attempts=delivery.attempts,
        is_slack=is_slack,
        url=next(iter(urls.get(webhook.id, ())), "") if is_slack else webhook.url,
        body=event_body(event.payload, event.kind, include_context=webhook.include_context),
        secrets=secrets,
        claimed_at=moment,
    )


async def _lock_webhooks(session: AsyncSession, ids: set[str]) -> Mapping[str, Webhook]:
    # To prevent deadlocks, every transaction locks webhooks before deliveries, and in the order of their ids. The lock
    # with key_share still allows other transactions to store events for the webhooks.
    query = (
        select(Webhook)
        .where(col(Webhook.id).in_(ids))
        .order_by(col(Webhook.id))
        .with_for_update(key_share=True)
    )
    return {webhook.id: webhook for webhook in (await session.exec(query)).all()}


async def _record_success(
    session: AsyncSession, webhook: Webhook, attempt: Attempt, result: SendResult
) -> None:
    moment = now(session)
    webhook.last_success_at = moment
    session.add(webhook)
    # Mark the delivery as successful, because the receiver accepted the event, even if the delivery was marked as
    # failed in the meantime.
    await session.exec(
        update(Delivery)
        .where(col(Delivery.id) == attempt.delivery_id)
        .values(
            status=DELIVERED,
            delivered_at=moment,
            next_attempt_at=None,
            **_attempt_values(moment, attempt, result),
        )
    )


async def _record_failure(
    session: AsyncSession, webhook: Webhook, attempt: Attempt, result: SendResult
) -> None:
    moment, next_at = now(session), None
    if attempt.kind != TEST_EVENT:
        next_at = next_attempt(moment, attempt.attempts + 1, attempt.event_created_at, result.retry_after)
    await session.exec(
        update(Delivery)
        # Update only a pending delivery: if another gateway ended the delivery during this attempt, the delivery keeps
        # its status.
        .where(col(Delivery.id) == attempt.delivery_id, col(Delivery.status) == PENDING)
        .values(
            status=PENDING if next_at else FAILED,
            next_attempt_at=next_at,
            **_attempt_values(moment, attempt, result),
        )
    )
    if attempt.kind == TEST_EVENT:
        return
    if result.gone:
        await _disable(session, webhook, GONE)
    # Do not disable the webhook after a single failed attempt. There is only one attempt if a user retries an old
    # event, or if the gateway was stopped for days.
    elif next_at is None and attempt.attempts > 0 and _has_no_success_since(webhook, attempt):
        await _disable(session, webhook, UNREACHABLE)


def _has_no_success_since(webhook: Webhook, attempt: Attempt) -> bool:
    return webhook.last_success_at is None or webhook.last_success_at < attempt.event_created_at


def _attempt_values(moment: datetime, attempt: Attempt, result: SendResult) -> dict[str, Any]:
    return {
        "attempts": attempt.attempts + 1,
        "claimed_until": None,
        "response_code": result.code,
        "error": result.error,
        "last_attempt_at": moment,
    }


async def _disable(session: AsyncSession, webhook: Webhook, reason: str) -> None:
    if not webhook.is_active:
        return
    webhook.is_active, webhook.disabled_reason, webhook.disabled_at = False, reason, now(session)
    session.add(webhook)
    await fail_pending(session, webhook.id, DISABLED)
    audit.record_outside(
        session,
        webhook.organization_id,
        "webhook.disabled",
        resource_id=webhook.id,
        environment=webhook.environment,
        changes={"reason": reason},
    )


def _due(moment: datetime) -> tuple[ColumnElement[bool], ...]:
    claimed = col(Delivery.claimed_until)
    return (
        # Write the status as a literal into the SQL: for a bound parameter, SQLite would not use the partial index of
        # pending deliveries.
        col(Delivery.status) == literal(PENDING, literal_execute=True),
        col(Delivery.next_attempt_at) <= moment,
        or_(claimed.is_(None), claimed <= moment),
    )


#: Query for the webhooks that have deliveries to send now. It reads a few index entries per webhook instead of all
#: pending deliveries.
_WAITING_WEBHOOKS = (
    text(
        """
WITH RECURSIVE waiting (webhook_id) AS (
    SELECT webhook_id FROM (
        SELECT webhook_id FROM deliveries
        WHERE status = 'pending' AND next_attempt_at IS NOT NULL ORDER BY webhook_id LIMIT 1
    ) AS first
    UNION ALL
    SELECT (
        SELECT d.webhook_id FROM deliveries d
        WHERE d.status = 'pending' AND d.next_attempt_at IS NOT NULL AND d.webhook_id > w.webhook_id
        ORDER BY d.webhook_id LIMIT 1
    )
    FROM waiting w WHERE w.webhook_id IS NOT NULL
)
SELECT h.id, h.organization_id, h.is_active AND h.deleted_at IS NULL AS is_active
FROM waiting w JOIN webhooks h ON h.id = w.webhook_id
WHERE EXISTS (
    SELECT 1 FROM deliveries d
    WHERE d.webhook_id = w.webhook_id AND d.status = 'pending' AND d.next_attempt_at <= :now
        AND (d.claimed_until IS NULL OR d.claimed_until <= :now)
)
"""
    )
    .bindparams(bindparam("now", type_=Timestamp()))
    .columns(id=Id(), organization_id=Id())
)
