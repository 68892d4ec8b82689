"""The delivery worker: several gateways on one database, expired claims, shutdown, database failures."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import col, delete, select, update
from support.gateway import SECRET
from support.outbox import Outbox, Thing
from support.waiting import eventually

from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import StorageFault
from toolgate_service.core.plans import BUILT_IN
from toolgate_service.db.database import now
from toolgate_service.db.health import MAX_SKEW
from toolgate_service.outbound.sender import Sender, SendResult
from toolgate_service.slack.messages import slack_message
from toolgate_service.webhooks import worker as worker_module
from toolgate_service.webhooks.delivery_queue import (
    MAX_ATTEMPTS,
    MAX_ATTEMPTS_PER_ORGANIZATION,
    MAX_ATTEMPTS_PER_WEBHOOK,
    claim_deliveries,
)
from toolgate_service.webhooks.events import configure
from toolgate_service.webhooks.models import Delivery, Webhook, WebhookSecret
from toolgate_service.webhooks.repository import add_secret
from toolgate_service.webhooks.worker import Worker

VAULT = Vault(SECRET.encode())
#: seconds until a worker looks by itself: in these tests it is woken
NEVER = 3600


class Recorder(Sender):
    """Sender that records requests and returns the given result."""

    def __init__(self, outcome: SendResult | None = None) -> None:
        super().__init__(allow_private=False)
        self.sent: list[tuple[str, str]] = []
        self.outcome = outcome or SendResult(200, None)
        self.gate = asyncio.Event()
        self.gate.set()
        self.most = 0
        self._now = 0

    async def send(self, url: str, headers: Mapping[str, str], body: str) -> SendResult:
        self.sent.append((url, headers["webhook-id"]))
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await self.gate.wait()
        finally:
            self._now -= 1
        return self.outcome


async def hook(outbox: Outbox, *events: str, **fields: Any) -> str:
    """Add a webhook that has a secret."""
    webhook_id = await outbox.webhook(*events, **fields)
    async with outbox.database.writing() as session:
        add_secret(session, VAULT, await session.get_one(Webhook, webhook_id))
    return webhook_id


@asynccontextmanager
async def working(outbox: Outbox, sender: Sender, seconds: float = NEVER) -> AsyncIterator[Worker]:
    """Run a worker that commits wake."""
    worker = Worker(outbox.database, VAULT, sender, seconds, slack_message)
    configure(outbox.database, BUILT_IN, worker.wake)
    worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def deliveries(outbox: Outbox) -> list[Delivery]:
    async with outbox.database.reading() as session:
        return list((await session.exec(select(Delivery))).all())


async def until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds)


async def settled(outbox: Outbox) -> list[Delivery]:
    async def ended() -> list[Delivery]:
        found = await deliveries(outbox)
        return [] if any(one.status == "pending" for one in found) else found

    return await eventually(ended)


async def test_a_commit_wakes_the_worker(outbox: Outbox) -> None:
    """The worker does not wait for its next poll of the database."""
    sender = Recorder()
    await hook(outbox)
    async with working(outbox, sender):
        await outbox.emit("agent.created", Thing(id="t"))
        await until(lambda: len(sender.sent) == 1)
        (delivery,) = await settled(outbox)
    assert (delivery.status, delivery.attempts, delivery.claimed_until) == ("delivered", 1, None)


async def test_another_gateways_events_are_found_by_looking(outbox: Outbox) -> None:
    """Events of other processes are delivered at the next poll."""
    sender = Recorder()
    await hook(outbox)
    await outbox.emit("agent.created", Thing(id="t"))
    async with working(outbox, sender, seconds=0.05):
        await until(lambda: len(sender.sent) == 1)


async def test_a_gateway_whose_clock_is_wrong_delivers_nothing(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its clock and the database's differ, the worker claims nothing."""
    sender, differ = Recorder(), [MAX_SKEW + 1.0] * 3
    looked: list[float] = []

    def skewed(_: object) -> float:
        looked.append(differ.pop() if differ else 0.0)
        return looked[-1]

    monkeypatch.setattr(worker_module, "skew", skewed)
    await hook(outbox)
    async with working(outbox, sender, seconds=0.01):
        await outbox.emit("agent.created", Thing(id="t"))
        await until(lambda: len(sender.sent) == 1)
    assert looked[:4] == [MAX_SKEW + 1.0] * 3 + [0.0]


async def test_two_gateways_share_the_work(outbox: Outbox) -> None:
    """Each delivery is sent once, by one gateway."""
    first, second = Recorder(), Recorder()
    for _ in range(5):
        await hook(outbox)
    await outbox.emit("agent.created", *[Thing(id=str(number)) for number in range(20)])
    async with working(outbox, first, 0.01), working(outbox, second, 0.01):
        found = await settled(outbox)
    assert Counter(one.status for one in found) == {"delivered": 100}
    assert len(first.sent) + len(second.sent) == 100


async def test_claims_at_the_same_moment_are_disjoint(outbox: Outbox) -> None:
    """Ten concurrent claims never contain the same delivery."""
    for _ in range(6):
        await hook(outbox)
    await outbox.emit("agent.created", *[Thing(id=str(number)) for number in range(10)])

    async def take() -> list[str]:
        async with outbox.database.writing() as session:
            return [attempt.delivery_id for attempt in await claim_deliveries(session, VAULT, ())]

    taken = [one for found in await asyncio.gather(*[take() for _ in range(10)]) for one in found]
    assert taken
    assert len(taken) == len(set(taken))


async def test_what_a_killed_gateway_held_is_taken_again(outbox: Outbox) -> None:
    """Another gateway sends it after the claim has expired, with the same event id."""
    await hook(outbox)
    await outbox.emit("agent.created", Thing(id="t"))
    async with outbox.database.writing() as session:
        (held,) = await claim_deliveries(session, VAULT, ())
    async with outbox.database.writing() as session:
        assert await claim_deliveries(session, VAULT, ()) == ()
        lapsed = now(session) - timedelta(seconds=1)
        await session.exec(update(Delivery).values(claimed_until=lapsed))
        (again,) = await claim_deliveries(session, VAULT, ())
    assert (again.delivery_id, again.event_id, again.body) == (held.delivery_id, held.event_id, held.body)


async def test_one_webhook_has_few_attempts_at_once(outbox: Outbox) -> None:
    """A webhook has at most four attempts at once."""
    sender = Recorder()
    sender.gate.clear()
    await hook(outbox)
    await outbox.emit("agent.created", *[Thing(id=str(number)) for number in range(20)])
    async with working(outbox, sender, 0.01):
        await until(lambda: len(sender.sent) == MAX_ATTEMPTS_PER_WEBHOOK)
        sender.gate.set()
        await settled(outbox)
    assert (sender.most, len(sender.sent)) == (MAX_ATTEMPTS_PER_WEBHOOK, 20)


async def test_one_organization_leaves_room_for_others(outbox: Outbox) -> None:
    """The webhooks of an organization share a limit, which does not delay other organizations."""
    sender = Recorder()
    sender.gate.clear()
    for number in range(8):
        await hook(outbox, url=f"https://greedy.example/{number}")
    await outbox.emit("agent.created", *[Thing(id=str(number)) for number in range(5)])
    async with working(outbox, sender, 0.01):
        await until(lambda: len(sender.sent) == MAX_ATTEMPTS_PER_ORGANIZATION)
        await outbox.found("pro")
        await hook(outbox, url="https://modest.example/")
        await outbox.emit("agent.created", Thing(id="t"))
        await until(lambda: sender.sent[-1][0] == "https://modest.example/")
        assert len(sender.sent) == MAX_ATTEMPTS_PER_ORGANIZATION + 1 <= MAX_ATTEMPTS
        sender.gate.set()
        await settled(outbox)


async def test_stopping_leaves_the_rest_to_the_next(outbox: Outbox) -> None:
    """A stopping worker does not wait for slow receivers, and releases their deliveries."""
    sender = Recorder()
    sender.gate.clear()
    await hook(outbox)
    async with working(outbox, sender):
        await outbox.emit("agent.created", Thing(id="t"))
        await until(lambda: len(sender.sent) == 1)
    (delivery,) = await deliveries(outbox)
    assert (delivery.status, delivery.attempts, delivery.claimed_until) == ("pending", 0, None)
    other = Recorder()
    async with working(outbox, other, 0.01):
        await settled(outbox)
    assert other.sent == sender.sent


async def test_a_result_survives_a_database_that_is_away(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are stored after a database failure, and the events are not sent again."""
    sender = Recorder()
    sender.gate.clear()
    await hook(outbox)
    original, fails = outbox.database.writing, [True]

    def writing(*turns: str) -> Any:
        if fails[0] and sender.gate.is_set():
            fails[0] = False
            raise StorageFault("away")
        return original(*turns)

    async with working(outbox, sender):
        await outbox.emit("agent.created", Thing(id="t"))
        await until(lambda: len(sender.sent) == 1)
        monkeypatch.setattr(outbox.database, "writing", writing)
        sender.gate.set()
        (delivery,) = await settled(outbox)
    assert (delivery.status, len(sender.sent), fails) == ("delivered", 1, [False])


async def test_a_secret_that_cannot_be_opened_is_said(outbox: Outbox) -> None:
    """A delivery without a readable secret is not sent."""
    sender = Recorder()
    await outbox.webhook()
    async with working(outbox, sender):
        await outbox.emit("agent.created", Thing(id="t"))

        async def tried() -> list[Delivery]:
            return [one for one in await deliveries(outbox) if one.attempts]

        (found,) = await eventually(tried)
    assert (found.status, found.error) == (
        "pending",
        "the signing secret cannot be decrypted; rotate the secret",
    )
    assert sender.sent == []


async def test_what_was_written_for_one_just_switched_off_ends(outbox: Outbox) -> None:
    """An event that was stored while its webhook was being disabled is not delivered."""
    webhook = await hook(outbox)
    await outbox.emit("agent.created", Thing(id="t"))
    async with outbox.database.writing() as session:
        await session.exec(update(Webhook).where(Webhook.id == webhook).values(is_active=False))  # type: ignore[arg-type]  # SQLModel's columns
    sender = Recorder()
    async with working(outbox, sender, 0.01):
        (delivery,) = await settled(outbox)
    assert (delivery.status, delivery.error, sender.sent) == ("failed", "the webhook was disabled", [])


async def test_a_webhook_that_was_removed_meanwhile_holds_up_nobody(outbox: Outbox) -> None:
    """Results for a webhook that was removed meanwhile do not affect those of other webhooks."""
    sender = Recorder()
    sender.gate.clear()
    removed = await hook(outbox, "agent.created")
    await hook(outbox, "agent.deleted")
    async with working(outbox, sender):
        await outbox.emit("agent.created", Thing(id="t"))
        await until(lambda: len(sender.sent) == 1)
        async with outbox.database.writing() as session:
            for table, column in ((Delivery, Delivery.webhook_id), (WebhookSecret, WebhookSecret.webhook_id)):
                await session.exec(delete(table).where(col(column) == removed))
            await session.exec(delete(Webhook).where(col(Webhook.id) == removed))
        sender.gate.set()
        await outbox.emit("agent.deleted", Thing(id="t"))
        (delivery,) = await settled(outbox)
    assert (delivery.status, len(sender.sent)) == ("delivered", 2)


@pytest.mark.parametrize("backwards", [False, True])
async def test_who_has_least_under_way_goes_first(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    """The last free place goes to the webhook with the fewest running attempts."""
    monkeypatch.setattr(random, "shuffle", lambda waiting: waiting.sort(reverse=backwards))
    slow, quick = await hook(outbox), await hook(outbox)
    await outbox.emit("agent.created", *(Thing(id=str(number)) for number in range(3)))
    async with outbox.database.writing() as session:
        first = next(one for one in await claim_deliveries(session, VAULT, ()) if one.webhook_id == slow)
        await session.rollback()
    others = [replace(first, webhook_id=slow)] * (MAX_ATTEMPTS_PER_WEBHOOK - 1)
    elsewhere = [replace(first, organization_id="another", webhook_id="another")] * (
        MAX_ATTEMPTS - len(others) - 1
    )
    async with outbox.database.writing() as session:
        assert [one.webhook_id for one in await claim_deliveries(session, VAULT, [*others, *elsewhere])] == [
            quick
        ]
