"""Decisions about a batch of log entries that are committed together, without I/O and without the current time.

First a store locks the tenants and loads a `Known`, then the batch decides about each entry, and then the store writes
the rows and commits. An invalid entry fails alone: the batch rejects it before the write, so it cannot cause a database
error that would fail the whole batch.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from toolgate_service.core.plans import UNLIMITED, crosses
from toolgate_service.db.models import PRODUCTION
from toolgate_service.logs.entries import NewEntry, Outcome, Refused, Replayed, Stored, entry_answer

#: time for which the response to an idempotency key is stored
REMEMBERED = timedelta(hours=24)

#: id of an organization and name of one of its environments
Tenant: TypeAlias = tuple[str, str]

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Known:
    """State of the database that the decisions about a batch depend on.

    Attributes:
        now: Current time of the database.
        agents: Existing agents of the batch, as pairs of tenant and agent id.
        used: Number of entries that each tenant has logged this month.
        held: Size of each test environment's log in bytes.
        answers: Stored response and fingerprint of each idempotency key that was used before, by tenant and key.
        listening: Tenants with a webhook that receives an event for every log entry.
    """

    now: datetime
    agents: frozenset[tuple[Tenant, str]]
    used: dict[Tenant, int]
    held: dict[Tenant, int]
    answers: dict[tuple[Tenant, str], tuple[bytes, str]]
    listening: frozenset[Tenant] = frozenset()


@dataclass(slots=True)
class Batch:
    """Decisions about a batch, and the rows to write for them.

    Attributes:
        entries: Entries to store.
        answers: Entries with an idempotency key, and the response to store for each.
        mismatches: Entries that repeat an idempotency key with another body. They are written to the audit log.
        grown: Number of bytes by which each test environment's log grows.
        crossings: Entries that reached a warning level or the limit of the plan, each with the number of entries of the
            month.
    """

    known: Known
    entries: list[tuple[NewEntry, Stored]] = field(default_factory=list)
    answers: list[tuple[NewEntry, bytes]] = field(default_factory=list)
    mismatches: list[NewEntry] = field(default_factory=list)
    grown: dict[Tenant, int] = field(default_factory=dict)
    crossings: list[tuple[NewEntry, int]] = field(default_factory=list)

    @property
    def month(self) -> str:
        """Calendar month in which the entries are counted, such as ``2026-11``."""
        return month_of(self.known.now)

    def decide(self, entries: Sequence[NewEntry]) -> list[Outcome]:
        """Return the outcome of each entry, in order."""
        moments = self._moments()
        return [self._add(entry, moments) for entry in entries]

    def _moments(self) -> Iterator[datetime]:
        # The times differ by a microsecond, so that lists show the entries of a batch in the order of their arrival.
        moment = self.known.now
        while True:
            yield moment
            moment += _TICK

    def _add(self, entry: NewEntry, moments: Iterator[datetime]) -> Outcome:
        known, tenant = self.known, tenant_of(entry)
        if entry.idempotency_key is not None:
            earlier = known.answers.get((tenant, entry.idempotency_key))
            if earlier is not None:
                return (
                    self._repeat(entry, *earlier) if _may_see(entry, earlier[0]) else Refused.key_of_another()
                )
        if (tenant, entry.agent_id) not in known.agents:
            return Refused.agent_not_found()
        used, limit = known.used.get(tenant, 0), entry.max_logs_per_month
        if entry.environment == PRODUCTION and limit != UNLIMITED and used >= limit:
            return Refused.plan_limit(used, limit, entry.plan)
        if entry.max_log_bytes != UNLIMITED:
            held = known.held.get(tenant, 0)
            if held + entry.size > entry.max_log_bytes:
                return Refused.test_log_full(held, entry.max_log_bytes)
            known.held[tenant] = held + entry.size
            self.grown[tenant] = self.grown.get(tenant, 0) + entry.size
        known.used[tenant] = used + 1
        if entry.environment == PRODUCTION and crosses(used + 1, limit) is not None:
            self.crossings.append((entry, used + 1))
        stored = Stored.at(next(moments))
        answer = entry_answer(entry, stored)
        self.entries.append((entry, stored))
        if entry.idempotency_key is not None:
            known.answers[tenant, entry.idempotency_key] = (answer, entry.fingerprint)
            self.answers.append((entry, answer))
        return stored.with_body(answer)

    def _repeat(self, entry: NewEntry, answer: bytes, fingerprint: str) -> Replayed:
        mismatch = fingerprint != entry.fingerprint
        if mismatch:
            self.mismatches.append(entry)
        return Replayed(answer, mismatch=mismatch)


def _may_see(entry: NewEntry, answer: bytes) -> bool:
    # All API keys of a tenant share one set of idempotency keys. However, an API key of a single agent must not see
    # entries of other agents.
    if entry.acts_as is None:
        return True
    earlier: dict[str, object] = json.loads(answer)
    return earlier["agent_id"] == entry.acts_as


def tenant_of(entry: NewEntry) -> Tenant:
    """Return the organization's id and the environment's name of an entry."""
    return (entry.organization_id, entry.environment)


def month_of(moment: datetime) -> str:
    """Return the calendar month of a time in UTC, such as ``2026-11``."""
    return f"{moment:%Y-%m}"
