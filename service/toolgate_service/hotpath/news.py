"""What webhooks are told of log entries that are committed together. No I/O, no clock.

A store asks who wants to know only where a batch has something to tell; the events are committed with the entries.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from toolgate_service import exact_json
from toolgate_service.billing.usage import warning_at
from toolgate_service.hotpath.batch import Batch, Tenant, tenant_of
from toolgate_service.ids import new_id
from toolgate_service.logs.entries import COLUMNS, NewEntry, Stored
from toolgate_service.logs.schemas import LogEntryView
from toolgate_service.webhooks.kinds import LOG_CREATED, USAGE_WARNING, chosen
from toolgate_service.webhooks.outbox import payload

#: whether a webhook `w` wants to hear of every entry: such webhooks name it; asked beside what a batch reads anyway
LISTENS = f"w.is_active AND w.events LIKE '%\"{LOG_CREATED}\"%'"
#: an active webhook, and the kinds it wants as they are stored
Subscriber = tuple[str, str | None]


class EventRow(NamedTuple):
    """An event to be written, its columns in order."""

    id: str
    organization_id: str
    environment: str
    kind: str
    payload: str
    created_at: datetime


class DeliveryRow(NamedTuple):
    """A delivery to be written: pending, due at once."""

    id: str
    organization_id: str
    environment: str
    event_id: str
    webhook_id: str
    moment: datetime


class News(NamedTuple):
    """What is to be written."""

    events: list[EventRow]
    deliveries: list[DeliveryRow]


def newsworthy(batch: Batch) -> Sequence[Tenant]:
    """Return whose webhooks may want to know of a batch: mostly nobody's."""
    listening = batch.known.listening
    found = {tenant_of(entry) for entry, _ in batch.crossings if entry.tells}
    if listening:
        found |= {
            tenant for entry, _ in batch.entries if entry.tells and (tenant := tenant_of(entry)) in listening
        }
    return sorted(found)


def agents_named(batch: Batch, tenants: Iterable[Tenant]) -> Sequence[str]:
    """Return the ids of the agents whose names the events will show."""
    wanted = set(tenants)
    return sorted({entry.agent_id for entry, _ in batch.entries if tenant_of(entry) in wanted})


def news_of(batch: Batch, webhooks: Mapping[Tenant, Sequence[Subscriber]], names: Mapping[str, str]) -> News:
    """Return what is written down of a batch.

    Args:
        batch: decided.
        webhooks: the active webhooks of those for whom it is newsworthy.
        names: the agents' names by id.
    """
    news = News([], [])
    logs, usage = _wanting(webhooks, LOG_CREATED), _wanting(webhooks, USAGE_WARNING)
    for entry, stored in batch.entries:
        if (tenant := tenant_of(entry)) in logs and entry.tells:
            view = _entry_view(entry, stored, names[entry.agent_id])
            _add(news, tenant, LOG_CREATED, stored.created_at, view, logs[tenant])
    for entry, count in batch.crossings:
        warning = warning_at("logs", entry.plan, count, entry.max_logs_per_month)
        if (tenant := tenant_of(entry)) in usage and entry.tells and warning is not None:
            _add(news, tenant, USAGE_WARNING, batch.known.now, warning.model_dump(), usage[tenant])
    return news


def _wanting(webhooks: Mapping[Tenant, Sequence[Subscriber]], kind: str) -> Mapping[Tenant, Sequence[str]]:
    wanting = {
        tenant: [webhook for webhook, events in found if kind in chosen(events)]
        for tenant, found in webhooks.items()
    }
    return {tenant: found for tenant, found in wanting.items() if found}


def _add(
    news: News,
    tenant: Tenant,
    kind: str,
    moment: datetime,
    resource: Mapping[str, object],
    webhooks: Sequence[str],
) -> None:
    event = EventRow(new_id(), *tenant, kind, payload(kind, moment, *tenant, resource), moment)
    news.events.append(event)
    news.deliveries.extend(DeliveryRow(new_id(), *tenant, event.id, webhook, moment) for webhook in webhooks)


def _entry_view(entry: NewEntry, stored: Stored, agent_name: str) -> Mapping[str, object]:
    columns: dict[str, object] = {
        **dict(zip(COLUMNS, entry.values(), strict=True)),
        "id": stored.id,
        "created_at": stored.created_at,
        "agent_name": agent_name,
    }
    columns["context"] = None if entry.context is None else exact_json.loads_own(entry.context)
    columns["occurred_at"] = entry.occurred_at
    return {name: columns[name] for name in LogEntryView.model_fields}
