"""What webhooks are told of a batch of log entries."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from support.entries import new_entry

from toolgate_service.core import strict_json
from toolgate_service.core.plans import UNLIMITED, crosses
from toolgate_service.logs.events import Events, agents_in_events, build_events, tenants_with_events
from toolgate_service.logs.schemas import NewEntry
from toolgate_service.logs.writer import Batch, BatchState, Tenant

NOW = datetime(2026, 11, 30, tzinfo=UTC)
ACME: Tenant = ("acme", "production")
RIVAL: Tenant = ("rival", "production")
ENTRY = new_entry(
    plan="pro",
    max_logs_per_month=10,
    context='{"n":1.50000000000000000001}',
    address_seen="192.0.2.1",
    has_webhooks=True,
)
ALL = '["log.created","usage.warning"]'


def decided(*entries: NewEntry, used: int = 0, streaming: tuple[Tenant, ...] = (ACME,)) -> Batch:
    """A batch of entries, in the order in which they came."""
    agents = frozenset({(ACME, "bot"), (RIVAL, "bot")})
    batch = Batch(BatchState(NOW, agents, {ACME: used}, {}, {}, frozenset(streaming)))
    batch.decide(entries)
    return batch


def test_where_nobody_listens_nothing_is_newsworthy() -> None:
    """No further question is asked of the database."""
    assert tenants_with_events(decided(ENTRY, streaming=())) == []
    assert tenants_with_events(decided(replace(ENTRY, has_webhooks=False))) == []
    assert tenants_with_events(decided(replace(ENTRY, agent_id="nobody"))) == []


def test_only_listeners_are_asked_about() -> None:
    """Of several tenants in one batch, only those that have something to tell."""
    batch = decided(ENTRY, replace(ENTRY, organization_id="rival"))
    assert tenants_with_events(batch) == [ACME]
    assert agents_in_events(batch, [ACME]) == ["bot"]


def test_every_entry_is_an_event_for_every_listener() -> None:
    """Two entries, two listeners: two events, four deliveries; the context with every digit."""
    batch = decided(ENTRY, ENTRY)
    events, deliveries = build_events(batch, {ACME: [("w1", ALL), ("w2", ALL), ("w3", None)]}, {"bot": "Bot"})
    assert [(event.kind, event.created_at) for event in events] == [
        ("log.created", stored.created_at) for _, stored in batch.entries
    ]
    assert [(row.event_id, row.webhook_id) for row in deliveries] == [
        (event.id, webhook) for event in events for webhook in ("w1", "w2")
    ]
    assert '"context":{"n":1.50000000000000000001}' in events[0].payload
    log = strict_json.loads(events[0].payload.encode())
    assert isinstance(log, dict)
    assert "address_seen" not in events[0].payload


@given(used=st.integers(0, 12), many=st.integers(1, 12), split=st.integers(1, 12))
def test_each_threshold_is_told_once_however_the_entries_are_batched(
    used: int, many: int, split: int
) -> None:
    """The month's warnings depend on the counts alone."""
    told: list[Events] = []
    count = used
    for size in [split] * (many // split) + [many % split]:
        batch = decided(*[ENTRY] * size, used=count)
        count = batch.state.used[ACME]
        told.append(build_events(batch, {ACME: [("w", None)]}, {"bot": "Bot"}))
    warnings = [event for news in told for event in news.events]
    reached = [threshold for threshold in (8, 10) if used < threshold <= count]
    assert [event.kind for event in warnings] == ["usage.warning"] * len(reached)
    assert [
        f'"current":{number},' in event.payload for event, number in zip(warnings, reached, strict=True)
    ] == [True] * len(reached)


@given(limit=st.integers(1, 2000))
def test_counting_up_meets_each_threshold_once(limit: int) -> None:
    """From nothing to a limit: once 80 percent (where that is not the limit itself), once 100, never without limit."""
    met = [found for count in range(1, limit + 1) if (found := crosses(count, limit)) is not None]
    assert met in ([80, 100], [100])
    first = next(count for count in range(1, limit + 1) if 100 * count >= 80 * limit)
    assert crosses(first, limit) == (100 if first == limit else 80)
    assert crosses(limit, UNLIMITED) is None
    assert crosses(limit, 0) is None
