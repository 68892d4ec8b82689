"""Group commit of log entries: entries that wait at the same time share one transaction and one sync to disk.

A store locks the tenants of a batch (environments of organizations) and loads a `BatchState`. A `Batch` then decides
about each entry without I/O, and the store writes the rows and commits. An invalid entry does not affect the others:
the batch rejects it before the write, so it cannot cause a database error for the whole batch.

If another gateway holds the lock of an organization, the entries of this organization move to a separate queue, called
a lane, so that they do not delay the entries of other organizations.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

from toolgate_service.budgets.settlement import SettlingEntry, settles
from toolgate_service.core.concurrency import DeadlineQueue, QueuedItem
from toolgate_service.core.errors import ApiError
from toolgate_service.core.plans import UNLIMITED, crosses
from toolgate_service.db.database import Usage
from toolgate_service.db.health import OUTAGE
from toolgate_service.db.models import PRODUCTION
from toolgate_service.logs.schemas import NewEntry, Outcome, Refused, Replayed, Stored, entry_answer

if TYPE_CHECKING:
    from toolgate_service.core.metrics import Metrics


#: id of an organization and name of one of its environments
Tenant: TypeAlias = tuple[str, str]

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BatchState:
    """Values from the database on which the decisions about a batch of log entries depend.

    A tenant is an environment of an organization.

    Attributes:
        now: Current time of the database.
        agents: Existing agents to which entries of the batch refer, as pairs of tenant and agent id.
        used: Number of entries that each tenant has logged in the current month.
        log_bytes: Size in bytes of the log of each test environment.
        answers: Stored response and fingerprint of each idempotency key that was used before, by tenant and key.
        streaming: Tenants with a webhook that receives an event for every log entry.
        with_budgets: Tenants with budgets, whose reservations the entries may settle.
    """

    now: datetime
    agents: frozenset[tuple[Tenant, str]]
    used: dict[Tenant, int]
    log_bytes: dict[Tenant, int]
    answers: dict[tuple[Tenant, str], tuple[bytes, str]]
    streaming: frozenset[Tenant] = frozenset()
    with_budgets: frozenset[Tenant] = frozenset()


@dataclass(slots=True)
class Batch:
    """Decisions about a batch of log entries, and the rows to write for them.

    Attributes:
        entries: Entries to store.
        answers: Entries with an idempotency key, and the response to store for each.
        mismatches: Entries that repeat an idempotency key with a different body. They are written to the audit log.
        added_bytes: Number of bytes by which the log of each test environment grows.
        crossings: Entries that made the month's number of entries reach a warning threshold or the limit of the plan,
            each with this number.
    """

    state: BatchState
    entries: list[tuple[NewEntry, Stored]] = field(default_factory=list)
    answers: list[tuple[NewEntry, bytes]] = field(default_factory=list)
    mismatches: list[NewEntry] = field(default_factory=list)
    added_bytes: dict[Tenant, int] = field(default_factory=dict)
    crossings: list[tuple[NewEntry, int]] = field(default_factory=list)

    @property
    def month(self) -> str:
        """Calendar month in which the entries are counted, for example ``2026-11``."""
        return month_of(self.state.now)

    def decide(self, entries: Sequence[NewEntry]) -> list[Outcome]:
        """Return the outcome of each log entry, in the same order."""
        moments = self._moments()
        return [self._add(entry, moments) for entry in entries]

    def settling(self) -> list[SettlingEntry]:
        """Return the accepted entries of this batch that may settle or release budget reservations.

        The result contains only the fields that the settlement needs.
        """
        return [
            SettlingEntry(
                tenant_of(entry), entry.decision_id, entry.agent_id, entry.action, entry.status, entry.context
            )
            for entry, _ in (self.entries if self.state.with_budgets else ())
            if entry.decision_id is not None
            and settles(entry.decision_id, entry.status)
            and tenant_of(entry) in self.state.with_budgets
        ]

    def _moments(self) -> Iterator[datetime]:
        # Increase the time by a microsecond for each entry, so that lists show the entries of a batch in the order of
        # arrival.
        moment = self.state.now
        while True:
            yield moment
            moment += _TICK

    def _add(self, entry: NewEntry, moments: Iterator[datetime]) -> Outcome:
        state, tenant = self.state, tenant_of(entry)
        if entry.idempotency_key is not None:
            earlier = state.answers.get((tenant, entry.idempotency_key))
            if earlier is not None:
                return (
                    self._repeat(entry, *earlier)
                    if _may_see(entry, earlier[0])
                    else Refused.key_of_other_agent()
                )
        if (tenant, entry.agent_id) not in state.agents:
            return Refused.agent_not_found()
        used, limit = state.used.get(tenant, 0), entry.max_logs_per_month
        if entry.environment == PRODUCTION and limit != UNLIMITED and used >= limit:
            return Refused.plan_limit(used, limit, entry.plan)
        if entry.max_log_bytes != UNLIMITED:
            log_bytes = state.log_bytes.get(tenant, 0)
            if log_bytes + entry.size > entry.max_log_bytes:
                return Refused.test_log_full(log_bytes, entry.max_log_bytes)
            state.log_bytes[tenant] = log_bytes + entry.size
            self.added_bytes[tenant] = self.added_bytes.get(tenant, 0) + entry.size
        state.used[tenant] = used + 1
        if entry.environment == PRODUCTION and crosses(used + 1, limit) is not None:
            self.crossings.append((entry, used + 1))
        stored = Stored.at(next(moments))
        answer = entry_answer(entry, stored)
        self.entries.append((entry, stored))
        if entry.idempotency_key is not None:
            state.answers[tenant, entry.idempotency_key] = (answer, entry.fingerprint)
            self.answers.append((entry, answer))
        return stored.with_body(answer)

    def _repeat(self, entry: NewEntry, answer: bytes, fingerprint: str) -> Replayed:
        mismatch = fingerprint != entry.fingerprint
        if mismatch:
            self.mismatches.append(entry)
        return Replayed(answer, mismatch=mismatch)


def _may_see(entry: NewEntry, answer: bytes) -> bool:
    # All API keys of an environment share one set of idempotency keys. A client with the API key of a single agent must
    # therefore not receive a stored response that belongs to another agent.
    if entry.acts_as is None:
        return True
    earlier: dict[str, object] = json.loads(answer)
    return earlier["agent_id"] == entry.acts_as


def tenant_of(entry: NewEntry) -> Tenant:
    """Return the id of the organization and the name of the environment to which a log entry belongs."""
    return (entry.organization_id, entry.environment)


def month_of(moment: datetime) -> str:
    """Return the calendar month (UTC) of a time, for example ``2026-11``."""
    return f"{moment:%Y-%m}"


MAX_BATCH = 256
#: maximum number of characters of the contexts in one batch, unless a single entry has more; a network of 100 Mbit/s
#: transfers them in a third of a second, and a statement must end within four seconds
MAX_BATCH_WEIGHT = 4 * 1024 * 1024
#: maximum number of waiting log entries, and maximum number of characters of their contexts; if one of the two is
#: reached, new entries are rejected with the status 503
MAX_WAITING = 10_000
MAX_WEIGHT = 64 * 1024 * 1024
RETRY_AFTER = 1

_Queue: TypeAlias = DeadlineQueue[NewEntry, Outcome]
_Entry: TypeAlias = QueuedItem[NewEntry, Outcome]


class LogStore(Protocol):
    """Interface of log stores, which commit batches of log entries."""

    async def open(self) -> None:
        """Connect to the database, whose schema must already exist."""

    def write_access(self) -> AbstractAsyncContextManager[object]:
        """Return a context manager that waits until this process may write to the database."""

    async def commit(self, entries: Sequence[NewEntry], *, wait: bool = False) -> Sequence[Outcome | None]:
        """Commit entries in one transaction and return one outcome for each, in order.

        The method returns after the database has synced the transaction to disk.

        Args:
            entries: Entries of any organizations; with `wait`, of one organization only.
            wait: True to wait for a lock that another gateway holds. Without `wait`, entries are not written if their
                organization or a row is locked. Their outcome is None, and the caller must commit them again with
                `wait`.

        Raises:
            Exception: The commit failed. If the connection was lost during the commit, the entries may be stored; a
                retry with the same idempotency keys is safe.
        """

    def usage(self) -> Usage | None:
        """Return the usage of the connection pool; None if the store has no pool."""

    async def close(self) -> None:
        """Close all connections to the database."""


class LogWriter:
    """Writer that collects the log entries of concurrent requests and commits them in batches.

    While one batch is written, entries for the next batch are collected, so the size of the batches grows with the
    load.
    """

    def __init__(
        self, store: LogStore, metrics: "Metrics | None" = None, *, max_batch: int = MAX_BATCH
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._max_batch = max_batch
        self._waiting = _queue()
        #: lanes by environment: separate queues for the entries of environments whose lock another gateway holds
        self._lanes: dict[Tenant, _Queue] = {}
        self._lane_tasks: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect the log store to the database."""
        await self._store.open()

    @property
    def has_room(self) -> bool:
        """True if the writer accepts another log entry: the limits for waiting entries are not reached."""
        if self._lanes:
            weight = self._waiting.weight + sum(lane.weight for lane in self._lanes.values())
            return self.waiting < MAX_WAITING and weight < MAX_WEIGHT
        return len(self._waiting) < MAX_WAITING and self._waiting.weight < MAX_WEIGHT

    @property
    def waiting(self) -> int:
        """Number of log entries that wait to be written."""
        return len(self._waiting) + sum(len(lane) for lane in self._lanes.values())

    async def append(self, entry: NewEntry) -> Outcome:
        """Queue a log entry, wait until it is committed to disk, and return its outcome.

        Raises:
            ApiError: 503, too many entries wait, the entry waited for too long, or the database failed.
        """
        if not self.has_room:
            raise _unavailable("Too many log entries wait to be written")
        lane = self._lanes.get(tenant_of(entry)) if self._lanes else None
        if lane is not None:
            # The background task of the lane (the separate queue of a locked environment) writes the entry.
            return await lane.add(entry, len(entry.context or ""))
        future = self._waiting.add(entry, len(entry.context or ""))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), context=Context())
        return await future

    async def stop(self) -> None:
        """Write all waiting log entries, then close the connections of the store."""
        while (self._task is not None and not self._task.done()) or self._lane_tasks:
            await asyncio.wait({*self._lane_tasks, *({self._task} if self._task is not None else ())})
        await self._store.close()

    async def _drain(self) -> None:
        while self._waiting:
            async with self._store.write_access():
                # Take the batch after the wait for the lock, so that it includes entries that arrived during the wait.
                batch = self._waiting.take(self._max_batch, MAX_BATCH_WEIGHT)
                if not batch:
                    # The batch is empty because all waiting entries expired while the lock was awaited.
                    return
                locked = await self._write(batch, wait=False)
            if locked:
                self._open_lanes(locked)

    def _open_lanes(self, locked: Sequence[_Entry]) -> None:
        """Create a lane for each environment of these entries, and move all waiting entries of the environment into it.

        A lane is a separate queue for an environment whose lock another gateway holds.
        """
        by_tenant = defaultdict[Tenant, list[_Entry]](list)
        for one in locked:
            by_tenant[tenant_of(one.item)].append(one)
        for one in self._waiting.extract(lambda entry: tenant_of(entry) in by_tenant):
            by_tenant[tenant_of(one.item)].append(one)
        for tenant, entries in by_tenant.items():
            lane = self._lanes[tenant] = _queue()
            lane.restore(entries)
            task = asyncio.create_task(self._drain_lane(tenant, lane), context=Context())
            self._lane_tasks.add(task)
            task.add_done_callback(self._lane_tasks.discard)

    async def _drain_lane(self, tenant: Tenant, lane: _Queue) -> None:
        try:
            while batch := lane.take(self._max_batch, MAX_BATCH_WEIGHT):
                await self._write(batch, wait=True)
        finally:
            del self._lanes[tenant]

    async def _write(self, batch: Sequence[_Entry], *, wait: bool) -> Sequence[_Entry]:
        """Commit a batch of log entries, and set the results of their futures.

        Returns:
            Entries that were not written, because another gateway holds the lock of their organization or of a row.
        """
        began = perf_counter()
        try:
            outcomes = await self._store.commit([one.item for one in batch], wait=wait)
        except Exception as failed:  # noqa: BLE001 - the error is logged, and each waiting request receives an error
            OUTAGE.failed("attempts to store batches of log entries", failed)
            if self._metrics is not None:
                self._metrics.log_entries.labels("failed").inc(len(batch))
            error = _unavailable("The log entry could not be written")
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(error)
            return ()
        if self._metrics is not None:
            _count(self._metrics, outcomes, perf_counter() - began)
        locked = []
        for one, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                locked.append(one)
            elif not one.future.done():
                one.future.set_result(outcome)
        return locked


def _count(metrics: "Metrics", outcomes: Sequence[Outcome | None], seconds: float) -> None:
    metrics.log_commits.observe(seconds)
    # Entries without an outcome are not written yet, because another gateway holds the lock of their environment, or a
    # row was locked. They are counted when they are committed.
    done = [outcome for outcome in outcomes if outcome is not None]
    if done:
        metrics.log_batches.observe(len(done))
    for outcome in done:
        name = (
            "stored"
            if isinstance(outcome, Stored)
            else "replayed"
            if isinstance(outcome, Replayed)
            else "refused"
        )
        metrics.log_entries.labels(name).inc()


def _queue() -> _Queue:
    return DeadlineQueue(lambda: _unavailable("The log entry could not be written in time"))


def _unavailable(why: str) -> ApiError:
    return ApiError(503, f"{why}; retry after {RETRY_AFTER} second", {"Retry-After": str(RETRY_AFTER)})
