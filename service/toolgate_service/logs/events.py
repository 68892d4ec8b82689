"""Webhook events for a batch of log entries, computed without I/O and without reading the clock.

The events are committed in the same transaction as the log entries. The webhooks are loaded only if the batch can cause
events.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from toolgate_service.billing.service import warning_at
from toolgate_service.core import strict_json
from toolgate_service.core.ids import new_id
from toolgate_service.logs.schemas import COLUMNS, LogEntryView, NewEntry, Stored
from toolgate_service.logs.writer import Batch, Tenant, tenant_of
from toolgate_service.webhooks.events import LOG_CREATED, USAGE_WARNING, build_payload, subscribed_types

#: SQL condition for webhooks (alias `w`) that receive an event for every log entry
STREAMS_ENTRIES = f"w.is_active AND w.events LIKE '%\"{LOG_CREATED}\"%'"
#: id of an active webhook, and the event types to which it subscribes, as stored in the database
Subscriber = tuple[str, str | None]


class EventRow(NamedTuple):
    """Row of the table `events`, with the values in the order of the columns."""

    id: str
    organization_id: str
    environment: str
    kind: str
    payload: str
    created_at: datetime


class DeliveryRow(NamedTuple):
    """Row of the table `deliveries` for an event that must be delivered immediately.

    `moment` is the time at which the row is created and the first attempt is due.
    """

    id: str
    organization_id: str
    environment: str
    event_id: str
    webhook_id: str
    moment: datetime


class Events(NamedTuple):
    """Rows of the tables `events` and `deliveries` to insert for a batch of log entries."""

    events: list[EventRow]
    deliveries: list[DeliveryRow]


def tenants_with_events(batch: Batch) -> Sequence[Tenant]:
    """Return the tenants in a batch whose webhooks must be loaded. Usually there are none.

    A tenant is an environment of an organization.
    """
    streaming = batch.state.streaming
    found = {tenant_of(entry) for entry, _ in batch.crossings if entry.has_webhooks}
    if streaming:
        found |= {
            tenant
            for entry, _ in batch.entries
            if entry.has_webhooks and (tenant := tenant_of(entry)) in streaming
        }
    return sorted(found)


def agents_in_events(batch: Batch, tenants: Iterable[Tenant]) -> Sequence[str]:
    """Return the ids of the agents of these tenants' log entries. The events contain the names of these agents.

    A tenant is an environment of an organization.
    """
    wanted = set(tenants)
    return sorted({entry.agent_id for entry, _ in batch.entries if tenant_of(entry) in wanted})


def build_events(
    batch: Batch, webhooks: Mapping[Tenant, Sequence[Subscriber]], names: Mapping[str, str]
) -> Events:
    """Return the rows of events and deliveries for a batch of log entries.

    `batch.decide` must have been called before. `webhooks` contains the active webhooks of the tenants (environments of
    organizations) that `tenants_with_events` returned. `names` contains the names of agents by id.
    """
    rows = Events([], [])
    logs, usage = (
        _subscribers_by_tenant(webhooks, LOG_CREATED),
        _subscribers_by_tenant(webhooks, USAGE_WARNING),
    )
    for entry, stored in batch.entries:
        if (tenant := tenant_of(entry)) in logs and entry.has_webhooks:
            view = _entry_view(entry, stored, names[entry.agent_id])
            _add(rows, tenant, LOG_CREATED, stored.created_at, view, logs[tenant])
    for entry, count in batch.crossings:
        warning = warning_at("logs", entry.plan, count, entry.max_logs_per_month)
        if (tenant := tenant_of(entry)) in usage and entry.has_webhooks and warning is not None:
            _add(rows, tenant, USAGE_WARNING, batch.state.now, warning.model_dump(), usage[tenant])
    return rows


def _subscribers_by_tenant(
    webhooks: Mapping[Tenant, Sequence[Subscriber]], kind: str
) -> Mapping[Tenant, Sequence[str]]:
    wanting = {
        tenant: [webhook for webhook, events in found if kind in subscribed_types(events)]
        for tenant, found in webhooks.items()
    }
    return {tenant: found for tenant, found in wanting.items() if found}


def _add(
    rows: Events,
    tenant: Tenant,
    kind: str,
    moment: datetime,
    resource: Mapping[str, object],
    webhooks: Sequence[str],
) -> None:
    event = EventRow(new_id(), *tenant, kind, build_payload(kind, moment, *tenant, resource), moment)
    rows.events.append(event)
    rows.deliveries.extend(DeliveryRow(new_id(), *tenant, event.id, webhook, moment) for webhook in webhooks)


def _entry_view(entry: NewEntry, stored: Stored, agent_name: str) -> Mapping[str, object]:
    columns: dict[str, object] = {
        **dict(zip(COLUMNS, entry.values(), strict=True)),
        "id": stored.id,
        "created_at": stored.created_at,
        "agent_name": agent_name,
    }
    columns["context"] = None if entry.context is None else strict_json.loads_own(entry.context)
    columns["occurred_at"] = entry.occurred_at
    return {name: columns[name] for name in LogEntryView.model_fields}
