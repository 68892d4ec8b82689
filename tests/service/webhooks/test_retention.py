"""Retention of events, deliveries, secrets and deleted webhooks."""

from datetime import datetime, timedelta

import pytest
from sqlmodel import select, update
from support.outbox import Outbox, Thing

from toolgate_service.core.clock import utcnow
from toolgate_service.db.database import now
from toolgate_service.webhooks.models import Delivery, Event, Webhook, WebhookSecret
from toolgate_service.webhooks.repository import prune_webhooks


async def told(outbox: Outbox, age: timedelta, status: str, environment: str) -> None:
    """Store an event and its delivery with an age."""
    before = {event.id for event in await outbox.events()}
    await outbox.emit("agent.created", Thing(id="t"), environment=environment)
    (made,) = {event.id for event in await outbox.events()} - before
    async with outbox.database.writing() as session:
        moment: datetime = now(session) - age
        await session.exec(update(Event).where(Event.id == made).values(created_at=moment))  # type: ignore[arg-type]  # SQLModel's columns
        await session.exec(
            update(Delivery).where(Delivery.event_id == made).values(created_at=moment, status=status)  # type: ignore[arg-type]  # SQLModel's columns
        )


@pytest.mark.parametrize(("environment", "days"), [("production", 30), ("test", 7)])
@pytest.mark.parametrize("batch", [1, 100])
async def test_what_was_told_is_kept_for_a_while(
    outbox: Outbox, environment: str, days: int, batch: int
) -> None:
    """Thirty days, in the test environment seven; pending deliveries stay."""
    await outbox.webhook(environment=environment)
    for status in ("delivered", "failed", "pending"):
        await told(outbox, timedelta(days=days, minutes=-1), status, environment)
        await told(outbox, timedelta(days=days, minutes=1), status, environment)
    counts = await prune_webhooks(outbox.database, batch, utcnow())
    assert counts == {"deliveries": 2, "events": 2, "webhook_secrets": 0, "webhooks": 0}
    async with outbox.database.reading() as session:
        left = sorted((await session.exec(select(Delivery.status))).all())
    assert left == ["delivered", "failed", "pending", "pending"]
    assert len(await outbox.events()) == 4
    assert (await prune_webhooks(outbox.database, batch, utcnow())).total() == 0


async def test_a_deleted_webhook_goes_with_the_last_that_it_was_told(outbox: Outbox) -> None:
    """A deleted webhook stays while it has deliveries; others are never removed."""
    webhook, living = await outbox.webhook(), await outbox.webhook("agent.deleted")
    await told(outbox, timedelta(days=1), "delivered", "production")
    async with outbox.database.writing() as session:
        gone = await session.get_one(Webhook, webhook)
        gone.deleted_at, gone.is_active = now(session), False
        session.add(gone)
    assert (await prune_webhooks(outbox.database, 10, utcnow()))["webhooks"] == 0
    assert (await prune_webhooks(outbox.database, 10, utcnow() + timedelta(days=30)))["webhooks"] == 1
    async with outbox.database.reading() as session:
        assert (await session.exec(select(Webhook.id))).all() == [living]


async def test_an_expired_secret_goes(outbox: Outbox) -> None:
    """A former secret is removed once it no longer signs."""
    webhook = await outbox.webhook()
    async with outbox.database.writing() as session:
        for number, expires in enumerate((None, now(session), now(session) + timedelta(hours=1))):
            session.add(
                WebhookSecret(
                    id=f"00000000-0000-7000-8000-00000000000{number}",
                    organization_id=outbox.organization_id,
                    environment="production",
                    webhook_id=webhook,
                    ciphertext=b"c",
                    created_at=now(session),
                    expires_at=expires,
                )
            )
    assert (await prune_webhooks(outbox.database, 10, utcnow()))["webhook_secrets"] == 1
