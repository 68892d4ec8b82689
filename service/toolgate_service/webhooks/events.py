"""Event types, and the transactional outbox: an event is stored in the transaction of the change that it reports.

The change and its event are committed together. Even after a crash, the database contains both or neither.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import bindparam, insert
from sqlalchemy import event as sessions
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core import strict_json
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import BUILT_IN, Plans
from toolgate_service.db.database import Database, now
from toolgate_service.db.pubsub import EVENTS, announce
from toolgate_service.organizations.models import Organization
from toolgate_service.webhooks.models import PENDING, Delivery, Event, Webhook

#: name of the plan feature that an organization needs for webhooks
FEATURE = "webhooks"

LOG_CREATED = "log.created"
USAGE_WARNING = "usage.warning"
#: all event types that a webhook may subscribe to
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
    LOG_CREATED,
    USAGE_WARNING,
    "organization.key_regenerated",
)
#: frequent event types, which a webhook receives only if it names them
OPT_IN_TYPES = frozenset({LOG_CREATED})
#: event types of a webhook that names none
DEFAULT_TYPES = tuple(kind for kind in EVENT_TYPES if kind not in OPT_IN_TYPES)
#: event types of a Slack webhook that names none
APPROVAL_TYPES = tuple(kind for kind in EVENT_TYPES if kind.startswith("approval."))
#: type of the event that `POST /api/webhooks/{id}/test` sends; a webhook cannot subscribe to it
TEST_EVENT = "webhook.test"

#: Keys in the dictionary `info` of a database or a session. The values are the plans, the function that wakes this
#: process's worker, and whether the session calls this function after its commit.
_PLANS = "toolgate.plans"
_WAKE = "toolgate.wake"
_WILL_WAKE = "toolgate.will_wake"

_ACTIVE_WEBHOOKS = (
    select(Webhook.id, Webhook.events, Organization.plan)
    .join(Organization, col(Organization.id) == Webhook.organization_id)
    .where(
        col(Webhook.organization_id) == bindparam("organization_id"),
        col(Webhook.environment) == bindparam("environment"),
        col(Webhook.is_active).is_(True),
        col(Webhook.deleted_at).is_(None),
    )
)


def subscribed_types(events: str | None) -> tuple[str, ...]:
    """Return the event types that a webhook receives, from their stored JSON. None means the default types."""
    return DEFAULT_TYPES if events is None else tuple(json.loads(events))


def resource_name(kind: str) -> str:
    """Return the key of the resource in the payload of an event type, for example ``approval``."""
    return kind.partition(".")[0]


def has_feature(plans: Plans, plan: str) -> bool:
    """Return whether a plan includes webhooks."""
    return FEATURE in plans[plan].features


def configure(database: Database, plans: Plans, wake: Callable[[], None]) -> None:
    """Set the plans, which define whether an organization has webhooks, and the function that wakes the worker.

    The function is called after the commit of a transaction with events.
    """
    database.info.update({_PLANS: plans, _WAKE: wake})


def wake_worker(database: Database) -> None:
    """Wake this process's worker, for code that commits events without a session."""
    wake: Callable[[], None] | None = database.info.get(_WAKE)  # type: ignore[assignment]  # set by `configure`
    if wake is not None:
        wake()


async def emit(
    session: AsyncSession, organization_id: str, environment: str, kind: str, *views: BaseModel
) -> None:
    """Store one event per view, and its deliveries to the subscribed webhooks. Without a subscriber, store nothing.

    The session must be the write transaction of the change. `kind` is one of `EVENT_TYPES`. The views are the changed
    resources in the format of the API, without secrets.
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
    """Store events as `emit` does. `make` returns the resources and is called only if a webhook is subscribed."""
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
    """Store one event per resource, and its deliveries to all given webhooks, regardless of their subscriptions.

    Returns:
        The events' ids.
    """
    if not webhooks or not resources:
        return ()
    moment = now(session)
    tenant = {"organization_id": organization_id, "environment": environment}
    events = [
        {
            **tenant,
            "id": new_id(),
            "kind": kind,
            "payload": build_payload(kind, moment, organization_id, environment, resource),
            "created_at": moment,
        }
        for resource in resources
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
    """Return the complete body of an event as JSON. `event_body` removes fields that a webhook must not receive."""
    data = {
        "organization_id": organization_id,
        "environment": environment,
        resource_name(kind): dict(resource),
    }
    return strict_json.dumps({"type": kind, "timestamp": moment, "data": data})


def wake_after_commit(session: AsyncSession) -> None:
    """Wake the workers of all gateways after the commit of this transaction; a rollback wakes none."""
    announce(session, EVENTS)
    wake: Callable[[], None] | None = session.info.get(_WAKE)
    if wake is not None and not session.info.get(_WILL_WAKE):
        session.info[_WILL_WAKE] = True
        sessions.listen(session.sync_session, "after_commit", lambda _: wake(), once=True)


async def _find_subscribers(
    session: AsyncSession, organization_id: str, environment: str, kind: str
) -> Sequence[str]:
    plans: Plans = session.info.get(_PLANS, BUILT_IN)
    values = {"organization_id": organization_id, "environment": environment}
    found = (await session.exec(_ACTIVE_WEBHOOKS, params=values)).all()
    return [
        id_ for id_, events, plan in found if has_feature(plans, plan) and kind in subscribed_types(events)
    ]
