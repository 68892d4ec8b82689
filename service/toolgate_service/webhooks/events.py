"""Types of events, and functions that store events in the database.

An event is stored in the transaction of the change that it reports (transactional outbox). Even after a crash, the
database contains either both the change and its event or neither of them.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Row, bindparam, insert, select
from sqlalchemy import event as sessions
from sqlmodel import col
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core import strict_json
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import BUILT_IN, Plans
from toolgate_service.core.strict_json import Json
from toolgate_service.db.database import Database, now
from toolgate_service.db.pubsub import EVENTS, announce
from toolgate_service.organizations.models import Organization
from toolgate_service.webhooks.models import PENDING, STANDARD, Delivery, Event, Webhook

#: Name of the plan feature that an organization needs for its webhooks to receive events.
FEATURE = "webhooks"

LOG_CREATED = "log.created"
USAGE_WARNING = "usage.warning"
#: Types of events to which a webhook can subscribe.
EVENT_TYPES = (
    "approval.requested",
    "approval.approved",
    "approval.denied",
    "approval.expired",
    "approval.cancelled",
    "approval.consumed",
    "approval.replaced",
    "approval.reminder",
    "agent.created",
    "agent.updated",
    "agent.deleted",
    "permission.created",
    "permission.updated",
    "permission.deleted",
    "rule.created",
    "rule.updated",
    "rule.deleted",
    "budget.created",
    "budget.updated",
    "budget.deleted",
    "budget.exceeded",
    "freeze.created",
    "freeze.lifted",
    LOG_CREATED,
    USAGE_WARNING,
    "organization.key_regenerated",
)
#: Types of frequent events. A webhook receives them only if its subscription lists them explicitly.
OPT_IN_TYPES = frozenset({LOG_CREATED})
#: Types of events that a webhook receives if its subscription lists no types.
DEFAULT_TYPES = tuple(kind for kind in EVENT_TYPES if kind not in OPT_IN_TYPES)
#: Types of events that a Slack webhook receives if its subscription lists no types.
APPROVAL_TYPES = tuple(kind for kind in EVENT_TYPES if kind.startswith("approval."))
#: Type of the event that `POST /api/webhooks/{id}/test` sends. Webhooks cannot subscribe to it.
TEST_EVENT = "webhook.test"

#: Keys in the dictionary `info` of a database or session. The values are the plans, the function that wakes the
#: delivery worker of this process, and a flag: True if the session will call this function after its commit.
_PLANS = "toolgate.plans"
_WAKE = "toolgate.wake"
_WILL_WAKE = "toolgate.will_wake"

_ACTIVE_WEBHOOKS = (
    select(col(Webhook.id), col(Webhook.kind), col(Webhook.url), col(Webhook.events), col(Organization.plan))
    .join(Organization, col(Organization.id) == Webhook.organization_id)
    .where(
        col(Webhook.organization_id) == bindparam("organization_id"),
        col(Webhook.environment) == bindparam("environment"),
        col(Webhook.is_active).is_(True),
        col(Webhook.deleted_at).is_(None),
    )
)


def subscribed_types(events: str | None) -> tuple[str, ...]:
    """Return the types of events that a webhook receives.

    `events` is the JSON list of types that is stored for the webhook; None means the default types.
    """
    return DEFAULT_TYPES if events is None else tuple(json.loads(events))


def resource_name(kind: str) -> str:
    """Return the key under which the payload of an event contains the changed resource, such as ``approval``."""
    return kind.partition(".")[0]


def has_feature(plans: Plans, plan: str) -> bool:
    """Return True if the plan includes webhooks."""
    return FEATURE in plans[plan].features


def configure(database: Database, plans: Plans, wake: Callable[[], None]) -> None:
    """Store `plans` and `wake` in the database object, so that code with a session of this database can use them.

    The plans define which organizations may use webhooks. The function `wake` wakes the delivery worker of this
    process: it is called after the commit of a transaction that adds events.
    """
    database.info.update({_PLANS: plans, _WAKE: wake})


def wake_worker(database: Database) -> None:
    """Wake the delivery worker of this process.

    A database session does this itself when it commits events. Code that commits events without a session must call
    this function.
    """
    wake: Callable[[], None] | None = database.info.get(_WAKE)  # type: ignore[assignment]  # set by `configure`
    if wake is not None:
        wake()


async def emit(
    session: AsyncSession, organization_id: str, environment: str, kind: str, *views: BaseModel
) -> None:
    """Store one event for each view, to be delivered to all subscribed webhooks.

    If no webhook is subscribed, nothing is stored. The session must belong to the transaction that makes the change.
    `kind` is one of `EVENT_TYPES`. The views are the changed resources in the format of the API, without secrets.
    """

    async def dump() -> Sequence[dict[str, Any]]:
        return [view.model_dump() for view in views]

    await emit_lazy(session, organization_id, environment, kind, dump)


async def emit_lazy(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    kind: str,
    make: Callable[[], Awaitable[Sequence[dict[str, Any]]]],
) -> None:
    """Store events as `emit` does, but call `make` to get the resources, and only if a webhook is subscribed."""
    if kind not in EVENT_TYPES:
        raise ValueError(f"Unknown event type {kind!r}: add it to EVENT_TYPES")
    webhooks = await _find_subscribers(session, organization_id, environment, kind)
    if webhooks:
        await add_events(session, organization_id, environment, kind, await make(), webhooks)


async def add_events(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    kind: str,
    resources: Sequence[dict[str, Any]],
    webhooks: Sequence[str],
) -> Sequence[str]:
    """Store one event for each resource, to be delivered to all given webhooks regardless of their subscriptions.

    Returns:
        Ids of the events, in the order of `resources`.
    """
    if not webhooks or not resources:
        return ()
    moment = now(session)
    payloads = [build_payload(kind, moment, organization_id, environment, resource) for resource in resources]
    return await _store(session, organization_id, environment, kind, moment, payloads, webhooks)


async def add_payload(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    kind: str,
    body: Mapping[str, Json],
    webhook_id: str,
) -> None:
    """Store an event for one webhook. In the JSON of the event, the members of `body` take the place of `data`."""
    moment = now(session)
    payload = strict_json.dumps({"type": kind, "timestamp": moment, **body})
    await _store(session, organization_id, environment, kind, moment, [payload], [webhook_id])


async def _store(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    kind: str,
    moment: datetime,
    payloads: Sequence[str],
    webhooks: Sequence[str],
) -> Sequence[str]:
    tenant = {"organization_id": organization_id, "environment": environment}
    events = [
        {**tenant, "id": new_id(), "kind": kind, "payload": payload, "created_at": moment}
        for payload in payloads
    ]
    deliveries = [
        {
            **tenant,
            "id": new_id(),
            "event_id": event["id"],
            "webhook_id": webhook,
            "status": PENDING,
            "attempts": 0,
            "next_attempt_at": moment,
            "created_at": moment,
        }
        for event in events
        for webhook in webhooks
    ]
    connection = await session.connection()
    await connection.execute(insert(Event), events)
    await connection.execute(insert(Delivery), deliveries)
    wake_after_commit(session)
    return [str(event["id"]) for event in events]


def build_payload(
    kind: str, moment: datetime, organization_id: str, environment: str, resource: Mapping[str, object]
) -> str:
    """Return the body of an event as JSON with all fields.

    `event_body` later removes the fields that a webhook must not receive.
    """
    data = {
        "organization_id": organization_id,
        "environment": environment,
        resource_name(kind): dict(resource),
    }
    return strict_json.dumps({"type": kind, "timestamp": moment, "data": data})


def wake_after_commit(session: AsyncSession) -> None:
    """Wake the delivery workers of all gateways when the transaction of this session is committed."""
    announce(session, EVENTS)
    wake: Callable[[], None] | None = session.info.get(_WAKE)
    if wake is not None and not session.info.get(_WILL_WAKE):
        session.info[_WILL_WAKE] = True
        sessions.listen(session.sync_session, "after_commit", lambda _: wake(), once=True)


async def find_receiver(
    session: AsyncSession, organization_id: str, environment: str, url: str
) -> str | None:
    """Return the id of an enabled webhook of type `standard` with this URL; None if there is none."""
    active = await _find_active(session, organization_id, environment)
    return next((one.id for one in active if (one.kind, one.url) == (STANDARD, url)), None)


async def _find_subscribers(
    session: AsyncSession, organization_id: str, environment: str, kind: str
) -> Sequence[str]:
    active = await _find_active(session, organization_id, environment)
    return [one.id for one in active if kind in subscribed_types(one.events)]


async def _find_active(
    session: AsyncSession, organization_id: str, environment: str
) -> Sequence[Row[str, str, str, str | None, str]]:
    """Return the enabled webhooks of an environment; none if the plan of the organization does not include webhooks."""
    plans: Plans = session.info.get(_PLANS, BUILT_IN)
    values = {"organization_id": organization_id, "environment": environment}
    # Flush the session, because it may contain changes of webhooks or of the plan that are not in the database yet.
    await session.flush()
    found = (await (await session.connection()).execute(_ACTIVE_WEBHOOKS, values)).all()
    return [one for one in found if has_feature(plans, one.plan)]
