"""Background writer of the decision log.

If a check changes nothing, its record is written after the response: the endpoint appends a `DecisionRecord` to a queue
in memory, and one background task writes the queue to the database in batches. If the process is killed, the records in
the queue are lost. A check that changes the database writes its record in its own transaction instead
(`repository.insert_decision`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from datetime import datetime
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from pydantic_core import to_json

from toolgate_service.context import AuthContext
from toolgate_service.core.clock import wire
from toolgate_service.core.ids import time_of_id
from toolgate_service.core.strict_json import Json, canonical, digest, dumps_typed, has_whole_decimals
from toolgate_service.db.health import OUTAGE
from toolgate_service.transparency.chunks import Chunk, build_chunks
from toolgate_service.transparency.leaves import COLUMNS as TRANSPARENCY_COLUMNS
from toolgate_service.transparency.leaves import (
    DECISION,
    SALT_DIGITS,
    Leaf,
    context_digest,
    is_short,
    new_salts,
    salted,
)

if TYPE_CHECKING:
    from toolgate_service.core.metrics import Metrics

logger = logging.getLogger("toolgate.gateway")

#: maximum number of characters of a stored context
MAX_CONTEXT = 4_000
#: maximum number of records in the queue. Each needs about 1 KB, and a context of at most `MAX_CONTEXT` characters. If
#: all contexts have this length, the queue needs 100 MB for ASCII texts, and up to 340 MB for other texts.
MAX_WAITING = 20_000
#: maximum number of records in one transaction
MAX_BATCH = 500
#: seconds for which new records are collected before they are converted to rows
CONVERSION_INTERVAL = 0.005
#: seconds for which a batch collects records, unless it is full earlier
INTERVAL = 0.1
#: seconds for which the recorder tries to write a batch before it drops the batch; the pauses between two attempts
#: increase from `_FIRST_PAUSE` to `_LONGEST_PAUSE`
WRITE_TIMEOUT = 60.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
#: maximum seconds that a shutdown waits for the queue to be written; the remaining records are dropped
STOP_SECONDS = 5.0
#: number of characters at the beginning of an id that contain the id's time, and a placeholder for the other characters
TIME_DIGITS = 13
_REST_OF_ID = "-0000-0000-000000000000"
#: maximum length of an unknown agent id in the log
MAX_REQUESTED_AGENT = 64


#: empty set of context variables, so that a background task keeps no trace or request alive
_NO_VARIABLES = Context()


class DecisionRecord(NamedTuple):
    """Decision to be written to the decision log.

    Attributes:
        id: Id of the decision, which contains the time of the decision.
        auth: API key, agent and permission with which the check was decided.
        requested_agent: `agent_id` of the request.
        context: Arguments of the call. The mapping is not copied, because nothing changes it after the request was
            parsed.
        canonical_text: Context as canonical JSON; None if it was not computed yet.
        rule_id: Id of the rule that decided; None if no rule did.
        approval_id: Id of the approval request that the check created, found or consumed.
    """

    id: str
    auth: AuthContext
    requested_agent: str
    action: str
    run_id: str | None
    call_id: str | None
    context: Mapping[str, Json]
    canonical_text: str | None
    outcome: str
    reason_code: str
    rule_id: str | None = None
    approval_id: str | None = None


#: values of the columns of a row, in the order of `COLUMNS`
Row: TypeAlias = tuple[datetime | str | int | None, ...]
#: function that converts the first `TIME_DIGITS` characters of an id to the id's time, in the type that a store needs
TimeFormat: TypeAlias = Callable[[str], datetime | str]

COLUMNS = (
    "created_at", "id", "organization_id", "environment", "agent_id", "requested_agent", "action", "run_id", "call_id",
    "key_id", "context_digest", "context", "policy_revision", "permission_id", "rule_id", "outcome", "reason_code",
    "approval_id", "salt",
)  # fmt: skip


# Cache the conversion: on a busy gateway, many checks happen in the same millisecond, and converting the time takes as
# long as building the rest of the row.
@lru_cache(maxsize=64)
def time_of_prefix(prefix: str) -> datetime:
    """Return the time of ids that begin with these `TIME_DIGITS` characters."""
    created = time_of_id(prefix + _REST_OF_ID)
    if created is None:
        raise ValueError(f"{prefix!r} is not the beginning of an id")
    return created


def build_row(
    record: DecisionRecord, time_format: TimeFormat = time_of_prefix, *, stores_context: bool = True
) -> Row:
    """Return the database row of a record, with the digest of the context.

    The row contains the context itself only if `stores_context` is true and the context is not longer than
    `MAX_CONTEXT` characters.
    """
    (
        decision_id,
        auth,
        requested_agent,
        action,
        run_id,
        call_id,
        context,
        text,
        outcome,
        reason_code,
        rule_id,
        approval_id,
    ) = record
    agent_id = auth.agent_id
    if text is None:
        text = canonical(context)
    return (
        time_format(decision_id[:TIME_DIGITS]),
        decision_id,
        auth.organization_id,
        auth.environment,
        agent_id,
        requested_agent[:MAX_REQUESTED_AGENT] if agent_id is None else None,
        action,
        run_id,
        call_id,
        auth.key_id,
        digest(text),
        _stored_context(context, text) if stores_context else None,
        auth.epoch,
        auth.permission_id,
        rule_id,
        outcome,
        reason_code,
        approval_id,
        new_salts(),
    )


def decision_leaf(row: Row) -> Leaf:
    """Return the leaf of a row in the transparency log."""
    # Do not call `build_leaf`, because every check needs a leaf, and this code takes half the time.
    values: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
    moment, salt, action = time_of_prefix(values["id"][:TIME_DIGITS]), values["salt"], values["action"]
    values["created_at"] = at = wire(moment)
    details = {name: values[name] for name in TRANSPARENCY_COLUMNS[DECISION]}
    # Hash the digest of the context together with the salt, because readers could guess a short context from its
    # unsalted digest.
    context = {"context": values["context"], "context_digest": values["context_digest"]}
    members = {
        "action": action if is_short(action) else None,
        "agent": values["agent_id"],
        "approval": values["approval_id"],
        "at": at,
        "context": context_digest(to_json(context), salt),
        "digest": salted(salt[:SALT_DIGITS], to_json(details)),
        "id": values["id"],
        "kind": DECISION,
        "outcome": values["outcome"],
        "reason": values["reason_code"],
        "rev": values["policy_revision"],
        "v": 1,
    }
    data = to_json({name: value for name, value in members.items() if value is not None})
    return Leaf(values["organization_id"], values["environment"], moment, data)


def _stored_context(context: Mapping[str, Json], canonical_text: str) -> str | None:
    if len(canonical_text) > MAX_CONTEXT:
        return None
    # The canonical text does not distinguish 1.0 from 1, but the conditions of rules do: they divide integers without a
    # fraction, for example.
    if not has_whole_decimals(dict(context)):
        return canonical_text
    text = dumps_typed(dict(context))
    return text if len(text) <= MAX_CONTEXT else None


class DecisionStore(Protocol):
    """Interface of decision stores, which write batches of rows."""

    @property
    def time_format(self) -> TimeFormat:
        """Function that converts the time in an id to the type that this store needs."""

    async def write(self, rows: Sequence[Row], chunks: Sequence[Chunk]) -> None:
        """Write rows and the chunks with their leaves in one transaction.

        Nothing is written if the rows already exist, so the call can be repeated.
        """


class DecisionObserver(Protocol):
    """Interface of objects that process decisions after the response, if the environment has a shadow policy.

    A shadow policy is a policy that is compared with the decisions, but not enforced.
    """

    def observe(self, record: DecisionRecord) -> None:
        """Process a decision. The method is called on the event loop and must not wait."""


class DecisionRecorder:
    """Queue of decision records, and the background task that writes them.

    Args:
        store: Store that writes the batches.
        metrics: Metrics of the process; None if metrics are disabled.
        observer: Observer of the decisions of environments with a shadow policy; None if there is no observer.
        write_timeout: Seconds for which the recorder tries to write a batch before it drops the batch.
        stores_contexts: True if the rows contain the contexts of the checks.

    Attributes:
        written: Number of records that were written.
        dropped: Number of records that were dropped, for example because the queue was full, or because the database
            was unavailable for too long.
        observer_errors: Number of errors that the observer raised.
    """

    def __init__(
        self,
        store: DecisionStore,
        metrics: "Metrics | None" = None,
        observer: DecisionObserver | None = None,
        *,
        write_timeout: float = WRITE_TIMEOUT,
        stores_contexts: bool = True,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._observer = observer
        self._write_timeout = write_timeout
        self._stores_contexts = stores_contexts
        #: records that are not converted to rows yet
        self._new: list[DecisionRecord] = []
        self._waiting: deque[tuple[Row, Leaf]] = deque()
        self._in_batch = 0
        self._is_full = asyncio.Event()
        self._is_closing = asyncio.Event()
        self._has_stopped = False
        self._task: asyncio.Task[None] | None = None
        self.written = 0
        self.dropped = 0
        self.observer_errors = 0
        #: value of `dropped` at the time of the last log message that records are stored again
        self._reported = 0

    @property
    def waiting(self) -> int:
        """Number of records that wait to be written."""
        return len(self._new) + len(self._waiting) + self._in_batch

    def record(self, record: DecisionRecord) -> None:
        """Queue a record, or drop it if the queue is full or the recorder has stopped. The method never waits."""
        if len(self._new) + len(self._waiting) >= MAX_WAITING or self._has_stopped:
            self._drop(1, "too many records wait to be stored")
            return
        if not self._new:
            # Convert a few records together after their responses: that is faster than to convert each one between two
            # requests. The queue must soon contain only strings, because the garbage collector would traverse parsed
            # contexts, which takes longer than the recorder's other work.
            asyncio.get_running_loop().call_later(CONVERSION_INTERVAL, self._convert, context=_NO_VARIABLES)
        self._new.append(record)

    def observe(self, record: DecisionRecord) -> None:
        """Pass a record that is stored already to the observer, shortly after the response."""
        if record.auth.shadow_id is not None:
            asyncio.get_running_loop().call_soon(self._observe, record, context=_NO_VARIABLES)

    def _observe(self, record: DecisionRecord) -> None:
        if self._observer is None:
            return
        try:
            self._observer.observe(record)
        except Exception:
            # An error of the observer must not prevent the record from being written.
            logger.exception("the shadow policy cannot be compared with a decision")
            self.observer_errors += 1

    def _convert(self) -> None:
        """Convert the new records to rows, and pass the records to the observer."""
        records, self._new = self._new, []
        if not records:
            # The recorder was stopped before the scheduled conversion.
            return
        time_format = self._store.time_format
        for record in records:
            try:
                row = build_row(record, time_format, stores_context=self._stores_contexts)
                self._waiting.append((row, decision_leaf(row)))
            except Exception:
                # An error in one record must not prevent the other records from being written.
                logger.exception("a decision record cannot be converted to a database row")
                self._drop(1, "a record cannot be converted to a database row")
            if record.auth.shadow_id is not None:
                self._observe(record)
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), context=Context())
        elif len(self._waiting) >= MAX_BATCH:
            self._is_full.set()

    async def stop(self) -> None:
        """Write all waiting records. After `STOP_SECONDS`, the remaining records are dropped."""
        self._is_closing.set()
        self._is_full.set()
        if self._new:
            self._convert()
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._task
        self._has_stopped = True
        if self.waiting:
            self._drop(self.waiting, "the database did not store the records before the shutdown")

    async def _drain(self) -> None:
        try:
            while self._waiting:
                # Wait until a batch is full, or until `INTERVAL` seconds have passed.
                if not self._is_closing.is_set():
                    self._is_full.clear()
                if len(self._waiting) < MAX_BATCH:
                    await _wait(self._is_full, INTERVAL)
                await self._write(
                    [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                )
        finally:
            self._task = None

    async def _write(self, batch: Sequence[tuple[Row, Leaf]]) -> None:
        rows, chunks = [row for row, _ in batch], build_chunks(leaf for _, leaf in batch)
        self._in_batch = len(rows)
        loop = asyncio.get_running_loop()
        ends, pause = loop.time() + self._write_timeout, _FIRST_PAUSE
        while True:
            began = perf_counter()
            try:
                await self._store.write(rows, chunks)
            except Exception as error:  # noqa: BLE001 - the error is logged, and the batch is written again
                OUTAGE.failed("attempts to store batches of decision records", error)
                if loop.time() >= ends:
                    self._in_batch = 0
                    self._drop(len(rows), "the database was unavailable for too long")
                    return
                if self._is_closing.is_set():
                    await asyncio.sleep(_FIRST_PAUSE)
                else:
                    await _wait(self._is_closing, pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self._in_batch = 0
                self._count(len(rows), perf_counter() - began)
                return

    def _count(self, rows: int, seconds: float) -> None:
        self.written += rows
        if self._metrics is not None:
            self._metrics.decision_batches.observe(rows)
            self._metrics.decision_commits.observe(seconds)
        if self.dropped > self._reported and len(self._waiting) < MAX_WAITING // 2:
            logger.info("decision records are stored again; %d were dropped", self.dropped - self._reported)
            self._reported = self.dropped

    def _drop(self, count: int, reason: str) -> None:
        """Count dropped records. Only the first drop is logged until records are stored again."""
        if self.dropped == self._reported:
            logger.error(
                "decision records are dropped: %s; until the database works again, the gateway counts "
                "further drops and does not log them",
                reason,
            )
        self.dropped += count


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
