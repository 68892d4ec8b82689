"""What becomes of log entries that are committed together (decisions §6, §7). No I/O, no clock.

A store reads what a batch must know, all of it under locks that hold until the commit; the batch decides about each
entry; the store writes what it says. One bad entry fails alone, for nothing is written that could fail.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from toolgate_service.logs.entries import NewEntry, Outcome, Refused, Replayed, Stored, entry_answer
from toolgate_service.plans import UNLIMITED, crosses
from toolgate_service.storage.base import PRODUCTION

#: how long the answer to an idempotency key is remembered (decisions §6)
REMEMBERED = timedelta(hours=24)

#: an organization and one of its environments
Tenant: TypeAlias = tuple[str, str]

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Known:
    """What the database holds about a batch.

    Attributes:
        now: the present moment by the database's clock.
        agents: those of the batch that exist, by tenant and id.
        used: how many entries each tenant has written this month.
        held: how many bytes of entries each test environment holds.
        answers: what is remembered for the batch's keys, by tenant and key: the answer and the body's fingerprint.
        listening: who has a webhook that is told of every entry.
    """

    now: datetime
    agents: frozenset[tuple[Tenant, str]]
    used: dict[Tenant, int]
    held: dict[Tenant, int]
    answers: dict[tuple[Tenant, str], tuple[bytes, str]]
    listening: frozenset[Tenant] = frozenset()


@dataclass(slots=True)
class Batch:
    """The decisions about a batch, and what is to be written for them.

    Attributes:
        entries: to be stored.
        answers: to be remembered, with their entries' keys.
        mismatches: repeated keys with another body, to be audited.
        grown: by how many bytes each test environment grows.
        crossings: entries with which a month came near its limit or reached it, and how many it then had.
    """

    known: Known
    entries: list[tuple[NewEntry, Stored]] = field(default_factory=list)
    answers: list[tuple[NewEntry, bytes]] = field(default_factory=list)
    mismatches: list[NewEntry] = field(default_factory=list)
    grown: dict[Tenant, int] = field(default_factory=dict)
    crossings: list[tuple[NewEntry, int]] = field(default_factory=list)

    @property
    def month(self) -> str:
        """The month that the entries count for, for instance ``2026-11``."""
        return month_of(self.known.now)

    def decide(self, entries: Sequence[NewEntry]) -> list[Outcome]:
        """Return what becomes of entries, one outcome each, in order."""
        moments = self._moments()
        return [self._add(entry, moments) for entry in entries]

    def _moments(self) -> Iterator[datetime]:
        # A microsecond apart, so that lists show the entries of one batch in the order in which they came.
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
    # A key is the tenant's, whichever agent used it first; but one that acts as one agent sees no other's entry.
    if entry.acts_as is None:
        return True
    earlier: dict[str, object] = json.loads(answer)
    return earlier["agent_id"] == entry.acts_as


def tenant_of(entry: NewEntry) -> Tenant:
    """Return whose entry it is."""
    return (entry.organization_id, entry.environment)


def month_of(moment: datetime) -> str:
    """Return the UTC calendar month of a moment."""
    return f"{moment:%Y-%m}"
