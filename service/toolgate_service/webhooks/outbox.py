"""Events are written down in the transaction of the change they tell of (decisions §10).

Committed together, neither an event without its change exists nor a change without its event, whenever a gateway dies.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import bindparam, insert
from sqlalchemy import event as sessions
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.ids import new_id
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import BUILT_IN, Plans
from toolgate_service.storage.database import Database, now
from toolgate_service.storage.notices import EVENTS, announce
from toolgate_service.webhooks.kinds import FEATURE, KINDS, chosen, resource_of
from toolgate_service.webhooks.models import PENDING, Delivery, Event, Webhook

#: what a session carries: the plans, and what wakes this process's worker
_PLANS = "toolgate.plans"
_WAKE = "toolgate.wake"
_WILL_WAKE = "toolgate.will_wake"

_LISTENING = (
    select(Webhook.id, Webhook.events, Organization.plan)
    .join(Organization, col(Organization.id) == Webhook.organization_id)
    .where(
        col(Webhook.organization_id) == bindparam("organization_id"),
        col(Webhook.environment) == bindparam("environment"),
        col(Webhook.is_active).is_(True),
        col(Webhook.deleted_at).is_(None),
    )
)


def equip(database: Database, plans: Plans, waking: Callable[[], None]) -> None:
    """Let every transaction know the plans, and wake the worker once events have been committed."""
    database.info.update({_PLANS: plans, _WAKE: waking})


def wake(database: Database) -> None:
    """Wake this process's worker: events have been committed past the sessions."""
    woken: Callable[[], None] | None = database.info.get(_WAKE)  # type: ignore[assignment]  # as `equip` put it there
    if woken is not None:
        woken()


async def emit(
    session: AsyncSession, organization_id: str, environment: str, kind: str, *views: BaseModel
) -> None:
    """Write down that something happened, for every webhook that wants to know; for none, nothing is written.

    Args:
        session: the change's write transaction.
        organization_id: whose change it is.
        environment: where.
        kind: one of `KINDS`.
        views: what it happened to, as the API shows it: an event each. Nothing secret.
    """

    async def shown() -> Sequence[dict[str, Any]]:
        return [view.model_dump() for view in views]

    await emit_made(session, organization_id, environment, kind, shown)


async def emit_made(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    kind: str,
    make: Callable[[], Awaitable[Sequence[dict[str, Any]]]],
) -> None:
    """Write down that something happened, as `emit` does, of which nothing is made ready where nobody wants to know.

    Args:
        session: the change's write transaction.
        organization_id: whose change it is.
        environment: where.
        kind: one of `KINDS`.
        make: makes what it happened to, as the API shows it, an event each; called once at most. Nothing secret.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of event")
    webhooks = await _subscribers(session, organization_id, environment, kind)
    if webhooks:
        await tell(session, organization_id, environment, kind, await make(), webhooks)


async def tell(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    kind: str,
    resources: Sequence[dict[str, Any]],
    webhooks: Sequence[str],
) -> Sequence[str]:
    """Write down events of a kind for some webhooks, whatever they asked for, and return the events' ids.

    Args:
        session: the change's write transaction.
        organization_id: whose change it is.
        environment: where.
        kind: the events' kind.
        resources: what happened to them, an event each.
        webhooks: ids of those that are told.
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
            "payload": payload(kind, moment, organization_id, environment, resource),
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


def payload(
    kind: str, moment: datetime, organization_id: str, environment: str, resource: Mapping[str, object]
) -> str:
    """Return an event's body, contexts included."""
    data = {
        "organization_id": organization_id,
        "environment": environment,
        resource_of(kind): dict(resource),
    }
    return exact_json.dumps({"type": kind, "timestamp": moment, "data": data})


def has_feature(plans: Plans, plan: str) -> bool:
    """Say whether a plan has webhooks."""
    return FEATURE in plans[plan].features


def wake_after_commit(session: AsyncSession) -> None:
    """Wake the workers when the transaction is committed; when it is rolled back, nobody hears of it."""
    announce(session, EVENTS)
    waking: Callable[[], None] | None = session.info.get(_WAKE)
    if waking is not None and not session.info.get(_WILL_WAKE):
        session.info[_WILL_WAKE] = True
        sessions.listen(session.sync_session, "after_commit", lambda _: waking(), once=True)


async def _subscribers(
    session: AsyncSession, organization_id: str, environment: str, kind: str
) -> Sequence[str]:
    plans: Plans = session.info.get(_PLANS, BUILT_IN)
    values = {"organization_id": organization_id, "environment": environment}
    found = (await session.exec(_LISTENING, params=values)).all()
    return [id_ for id_, events, plan in found if has_feature(plans, plan) and kind in chosen(events)]
