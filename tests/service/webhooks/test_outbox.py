"""Events and deliveries that a change stores."""

from decimal import Decimal
from types import MappingProxyType

import pytest
from support.outbox import Outbox, Thing

from toolgate_service.core import strict_json
from toolgate_service.core.ids import is_id
from toolgate_service.core.plans import BUILT_IN
from toolgate_service.db.database import now
from toolgate_service.webhooks.events import DEFAULT_TYPES, EVENT_TYPES, LOG_CREATED, configure, emit
from toolgate_service.webhooks.models import Webhook

THING = Thing(id="t")


async def test_where_nobody_wants_to_know_nothing_is_written(outbox: Outbox) -> None:
    """Without a subscribed webhook no event is stored."""
    await outbox.emit("agent.created", THING)
    assert await outbox.events() == []


async def test_the_payload_says_what_happened_where_and_when(outbox: Outbox) -> None:
    """The payload contains type, time, organization, environment and the resource under its name, with exact decimals."""
    await outbox.webhook()
    thing = Thing(id="t", amount=Decimal("0.10000000000000000001"), context={"n": 2**70})
    await outbox.emit("approval.requested", thing)
    (event,) = await outbox.events()
    assert strict_json.loads_own(event.payload) == {
        "type": "approval.requested",
        "timestamp": strict_json.loads_own(strict_json.dumps(event.created_at)),
        "data": {
            "organization_id": outbox.organization_id,
            "environment": "production",
            "approval": {"id": "t", "amount": Decimal("0.10000000000000000001"), "context": {"n": 2**70}},
        },
    }
    assert is_id(event.id)


async def test_one_event_goes_to_every_webhook_that_wants_it(outbox: Outbox) -> None:
    """Each view becomes one event for all its subscribers."""
    first, second = await outbox.webhook(), await outbox.webhook("agent.created", "agent.deleted")
    await outbox.webhook("agent.deleted")
    await outbox.emit("agent.created", THING, Thing(id="u"))
    assert len(await outbox.events()) == 2
    assert await outbox.told() == sorted([(first, "agent.created"), (second, "agent.created")] * 2)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=() if kind in {"approval.requested", "agent.created", LOG_CREATED} else pytest.mark.slow,
        )
        for kind in EVENT_TYPES
    ],
)
async def test_a_webhook_gets_every_kind_but_those_it_must_name(outbox: Outbox, kind: str) -> None:
    """A webhook without `events` receives all types but `log.created`."""
    webhook = await outbox.webhook()
    await outbox.emit(kind, THING)
    assert await outbox.told() == ([(webhook, kind)] if kind in DEFAULT_TYPES else [])
    assert set(EVENT_TYPES) - set(DEFAULT_TYPES) == {LOG_CREATED}


async def test_a_webhook_belongs_to_its_environment_and_organization(outbox: Outbox) -> None:
    """Events of other environments and organizations are not sent."""
    await outbox.webhook()
    await outbox.emit("agent.created", THING, environment="test")
    await outbox.found("pro")
    await outbox.emit("agent.created", THING)
    assert await outbox.events() == []


@pytest.mark.parametrize("fields", [{"is_active": False}, {"deleted": True}], ids=["inactive", "deleted"])
async def test_whoever_is_switched_off_is_not_told(outbox: Outbox, fields: dict[str, bool]) -> None:
    """Inactive and deleted webhooks receive no events."""
    webhook = await outbox.webhook(is_active=fields.get("is_active", True))
    if "deleted" in fields:
        async with outbox.database.writing(outbox.organization_id) as session:
            found = await session.get_one(Webhook, webhook)
            found.deleted_at = now(session)
            session.add(found)
    await outbox.emit("agent.created", THING)
    assert await outbox.events() == []


async def test_a_plan_without_webhooks_tells_nothing(outbox: Outbox) -> None:
    """After a downgrade no event is stored; the operator's plans decide."""
    await outbox.found("free")
    await outbox.webhook()
    await outbox.emit("agent.created", THING)
    assert await outbox.events() == []
    generous = MappingProxyType({**BUILT_IN, "free": BUILT_IN["pro"]})
    configure(outbox.database, generous, lambda: None)
    await outbox.emit("agent.created", THING)
    assert len(await outbox.events()) == 1


async def test_what_is_rolled_back_is_not_told(outbox: Outbox) -> None:
    """A rollback removes the event; only a commit wakes the worker, and once."""
    woken: list[None] = []
    configure(outbox.database, BUILT_IN, lambda: woken.append(None))
    await outbox.webhook()

    async def fail() -> None:
        async with outbox.database.writing(outbox.organization_id) as session:
            await emit(session, outbox.organization_id, "production", "agent.created", THING)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert (await outbox.events(), woken) == ([], [])
    async with outbox.database.writing(outbox.organization_id) as session:
        await emit(session, outbox.organization_id, "production", "agent.created", THING)
        await emit(session, outbox.organization_id, "production", "agent.updated", THING)
        assert woken == []
    assert len(woken) == 1


async def test_an_unknown_kind_is_a_mistake_of_ours(outbox: Outbox) -> None:
    """An unknown event type raises an error."""
    with pytest.raises(ValueError, match=r"'agent\.creatde'"):
        await outbox.emit("agent.creatde", THING)
