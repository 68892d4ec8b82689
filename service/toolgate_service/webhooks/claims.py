"""Which deliveries a gateway takes on, so that no two are at the same one (decisions §10)."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, bindparam, text
from sqlmodel import col, literal, or_, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.slack import secrets as slack_secrets
from toolgate_service.storage.database import Database, now
from toolgate_service.storage.types import Id, Timestamp
from toolgate_service.vault import Vault
from toolgate_service.webhooks.endings import SWITCHED_OFF, end_pending
from toolgate_service.webhooks.kinds import resource_of
from toolgate_service.webhooks.models import PENDING, SLACK, Delivery, Event, Webhook
from toolgate_service.webhooks.secrets import signing_secrets

#: A gateway that was killed holds what it took for so long: longer than an attempt takes.
HELD = timedelta(seconds=15)

#: attempts at once: in all, of one organization, and of one webhook: whoever's receiver is slow keeps nobody waiting
IN_ALL = 64
OF_ORGANIZATION = 16
OF_WEBHOOK = 4

#: what is shown of an event only to a webhook that asked for contexts
CONTEXTS = ("context", "approved_context", "reason")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery that is under way.

    Attributes:
        delivery_id: which.
        organization_id: whose.
        webhook_id: to whom.
        event_id: what the receiver knows it by.
        kind: the event's.
        event_made: when it happened.
        attempts: how many failed before.
        to_slack: whether it is sent as Slack's message, to a URL that is a secret.
        url: where; empty when it cannot be opened.
        body: what is sent, or what the message is made of.
        secrets: what signs it.
        moment: when it was taken.
    """

    delivery_id: str
    organization_id: str
    webhook_id: str
    event_id: str
    kind: str
    event_made: datetime
    attempts: int
    to_slack: bool
    url: str
    body: str
    secrets: Sequence[str]
    moment: datetime


class Room:
    """How many more attempts may begin."""

    def __init__(self, flying: Sequence[Attempt]) -> None:
        self._all = len(flying)
        self._organizations = Counter(attempt.organization_id for attempt in flying)
        self._webhooks = Counter(attempt.webhook_id for attempt in flying)

    @property
    def left(self) -> int:
        """How many, whosoever they are."""
        return IN_ALL - self._all

    def of(self, organization_id: str, webhook_id: str) -> int:
        """How many to one webhook."""
        return min(
            self.left,
            OF_ORGANIZATION - self._organizations[organization_id],
            OF_WEBHOOK - self._webhooks[webhook_id],
        )

    def busy(self, organization_id: str, webhook_id: str) -> tuple[int, int]:
        """How many are under way, of an organization and to one of its webhooks."""
        return self._organizations[organization_id], self._webhooks[webhook_id]

    def fill(self, organization_id: str, webhook_id: str, many: int) -> None:
        """Count some that begin."""
        self._all += many
        self._organizations[organization_id] += many
        self._webhooks[webhook_id] += many


async def anything_due(database: Database) -> bool:
    """Say whether a delivery waits to be taken: one look into an index."""
    async with database.reading() as session:
        return (
            await session.exec(select(Delivery.id).where(*_due(now(session))).limit(1))
        ).first() is not None


async def claim(session: AsyncSession, vault: Vault, flying: Sequence[Attempt]) -> Sequence[Attempt]:
    """Take deliveries that are due, as many as there is room for, and return them.

    Args:
        session: a write transaction.
        vault: opens the signing secrets.
        flying: those that this gateway is at already.
    """
    room, taken, moment = Room(flying), list[Delivery](), now(session)
    if room.left <= 0:
        return ()
    waiting = list((await (await session.connection()).execute(_WAITING, {"now": moment})).fetchall())
    # Whoever is at least goes first: no number of receivers that never answer keeps the others waiting. Otherwise everybody
    # has the same chance, whoever has waited with however much.
    random.shuffle(waiting)
    waiting.sort(key=lambda one: room.busy(one.organization_id, one.id))
    for webhook_id, organization_id, is_active in waiting:
        many = room.of(organization_id, webhook_id)
        if many > 0 and not is_active:
            # Switched off while somebody was writing an event down for it.
            await end_pending(session, webhook_id, SWITCHED_OFF)
        elif many > 0:
            found = await _take(session, webhook_id, moment, many)
            room.fill(organization_id, webhook_id, len(found))
            taken += found
    return await _attempts(session, vault, taken, moment)


async def release(session: AsyncSession, attempts: Sequence[Attempt]) -> None:
    """Leave deliveries to whoever comes next."""
    ids = [attempt.delivery_id for attempt in attempts]
    await session.exec(
        update(Delivery)
        .where(col(Delivery.id).in_(ids), col(Delivery.status) == PENDING)
        .values(claimed_until=None)
    )


def body_of(payload: str, kind: str, *, include_context: bool) -> str:
    """Return what is sent of an event: without contexts to whoever did not ask for them."""
    if include_context:
        return payload
    event = exact_json.loads_own(payload)
    match event:
        case {"data": dict(data)}:
            resource = data.get(resource_of(kind))
            if isinstance(resource, dict):
                for name in CONTEXTS:
                    resource.pop(name, None)
    return exact_json.dumps(event)


async def _take(session: AsyncSession, webhook_id: str, moment: datetime, many: int) -> Sequence[Delivery]:
    query = (
        select(Delivery)
        .where(Delivery.webhook_id == webhook_id, *_due(moment))
        .order_by(col(Delivery.next_attempt_at))
        .limit(many)
        # What another gateway is taking just now is not waited for.
        .with_for_update(skip_locked=True)
    )
    found = (await session.exec(query)).all()
    for delivery in found:
        delivery.claimed_until = moment + HELD
        session.add(delivery)
    return found


async def _attempts(
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
    secrets = await signing_secrets(session, vault, list(webhook_ids))
    to_slack = [webhook.id for webhook in webhooks.values() if webhook.kind == SLACK]
    urls = await slack_secrets.opened(session, vault, to_slack, slack_secrets.URL) if to_slack else {}
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
    urls: Mapping[str, str],
    secrets: Sequence[str],
    moment: datetime,
) -> Attempt:
    to_slack = webhook.kind == SLACK
    return Attempt(
        delivery_id=delivery.id,
        organization_id=delivery.organization_id,
        webhook_id=delivery.webhook_id,
        event_id=event.id,
        kind=event.kind,
        event_made=event.created_at,
        attempts=delivery.attempts,
        to_slack=to_slack,
        url=urls.get(webhook.id, "") if to_slack else webhook.url,
        body=body_of(event.payload, event.kind, include_context=webhook.include_context),
        secrets=secrets,
        moment=moment,
    )


def _due(moment: datetime) -> tuple[ColumnElement[bool], ...]:
    claimed = col(Delivery.claimed_until)
    return (
        # Written out: only then SQLite uses the index of those that wait.
        col(Delivery.status) == literal(PENDING, literal_execute=True),
        col(Delivery.next_attempt_at) <= moment,
        or_(claimed.is_(None), claimed <= moment),
    )


#: The webhooks that something waits for, each found by one step in the index, however much waits for it.
_WAITING = (
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
