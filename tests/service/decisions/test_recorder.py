"""The recorder: batches, a full queue, a failing database, and the shutdown."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from support.waiting import eventually

from toolgate_service.context import AuthContext
from toolgate_service.core.errors import StorageFault
from toolgate_service.core.ids import new_id, time_of_id
from toolgate_service.core.strict_json import Json, canonical, digest, dumps_typed, loads, loads_own
from toolgate_service.decisions import recorder as recording
from toolgate_service.decisions.recorder import (
    COLUMNS,
    MAX_CONTEXT,
    DecisionRecord,
    DecisionRecorder,
    Row,
    build_row,
    time_of_prefix,
)
from toolgate_service.transparency.chunks import Chunk

AUTH = AuthContext(
    key_id=new_id(),
    key_agent_id=None,
    organization_id=new_id(),
    environment="production",
    organization_is_active=1,
    plan="pro",
    requests_per_minute=None,
    agent_id=new_id(),
    permission_id=new_id(),
    epoch=7,
)
CONTEXT = {"b": Decimal("1.50"), "a": "ü"}


def made(**changes: object) -> DecisionRecord:
    record = DecisionRecord(new_id(), AUTH, "x" * 99, "a.b", "run", None, CONTEXT, None, "allowed", "allowed")
    return record._replace(**changes)


class Store:
    """A store in memory that fails while it is told to."""

    time_format = staticmethod(time_of_prefix)

    def __init__(self) -> None:
        self.batches: list[Sequence[Row]] = []
        self.fault: Exception | None = None
        self.attempts = 0

    async def write(self, rows: Sequence[Row], chunks: Sequence[Chunk]) -> None:
        assert sum(chunk.number for chunk in chunks) == len(rows)
        self.attempts += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        self.batches.append(rows)

    @property
    def ids(self) -> list[object]:
        return [row[1] for batch in self.batches for row in batch]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def recorder(store: Store) -> AsyncIterator[DecisionRecorder]:
    recorder = DecisionRecorder(store)
    yield recorder
    await recorder.stop()


def test_row_has_the_values_of_the_decision() -> None:
    record = made()
    row = dict(zip(COLUMNS, build_row(record), strict=True))
    assert row == {
        "created_at": time_of_id(record.id),
        "id": record.id,
        "organization_id": AUTH.organization_id,
        "environment": "production",
        "agent_id": AUTH.agent_id,
        "requested_agent": None,
        "action": "a.b",
        "run_id": "run",
        "call_id": None,
        "key_id": AUTH.key_id,
        "context_digest": digest('{"a":"ü","b":1.5}'),
        "context": '{"a":"ü","b":1.5}',
        "policy_revision": 7,
        "permission_id": AUTH.permission_id,
        "rule_id": None,
        "outcome": "allowed",
        "reason_code": "allowed",
        "approval_id": None,
        "salt": row["salt"],
    }


def test_row_of_an_unknown_agent_has_the_beginning_of_its_id() -> None:
    row = dict(zip(COLUMNS, build_row(made(auth=AUTH._replace(agent_id=None))), strict=True))
    assert (row["agent_id"], row["requested_agent"]) == (None, "x" * 64)


def stored(context: dict[str, Json], **options: bool) -> object:
    return dict(zip(COLUMNS, build_row(made(context=context), **options), strict=True))["context"]


@pytest.mark.parametrize(
    "sent",
    [
        "1.0",
        "1",
        "1e2",
        "-0.0",
        "1.50",
        "[2.0, 2, {}]",
        '{"b": 3.0, "a": "3.0"}',
        "9007199254740993.0",
        "null",
    ],
)
def test_stored_context_has_numbers_of_the_same_types(sent: str) -> None:
    context = loads(f'{{"x": {sent}}}'.encode())
    assert isinstance(context, dict)
    text = stored(context)
    assert isinstance(text, str)
    again = loads_own(text)
    assert again == context
    assert kinds(again) == kinds(context)
    assert canonical(context) == canonical(again)


def kinds(value: Json) -> object:
    """Return the types and signs of all numbers."""
    if isinstance(value, dict):
        return {name: kinds(member) for name, member in value.items()}
    if isinstance(value, list):
        return [kinds(member) for member in value]
    return (type(value), isinstance(value, Decimal) and value.is_signed())


@pytest.mark.parametrize("number", [1, Decimal("1.0")])
def test_context_is_stored_up_to_its_maximum_length(number: Json) -> None:
    rest = len(dumps_typed({"n": number, "t": ""}))
    longest: dict[str, Json] = {"n": number, "t": "x" * (MAX_CONTEXT - rest)}
    assert stored(longest) == dumps_typed(longest)
    assert stored({**longest, "t": "x" * (MAX_CONTEXT - rest + 1)}) is None


def test_context_is_not_stored_if_contexts_are_not_kept() -> None:
    assert stored({"a": 1}, stores_context=False) is None


def test_digest_is_that_of_a_given_canonical_text() -> None:
    text = canonical({"other": 1})
    assert digest(text) in build_row(made(canonical_text=text))


async def test_records_are_written_in_order_and_in_one_batch(
    store: Store, recorder: DecisionRecorder
) -> None:
    ids = []
    for _ in range(40):
        record = made()
        ids.append(record.id)
        recorder.record(record)
        await asyncio.sleep(0)
    assert store.batches == []
    assert recorder.waiting == 40
    await eventually(lambda: asyncio.sleep(0, recorder.written == 40))
    assert store.ids == ids
    assert [len(batch) for batch in store.batches] == [40]
    assert (recorder.waiting, recorder.dropped) == (0, 0)


async def test_full_batch_is_written_without_delay(
    store: Store, recorder: DecisionRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "INTERVAL", 3600.0)
    monkeypatch.setattr(recording, "MAX_BATCH", 10)
    for _ in range(25):
        recorder.record(made())
    await eventually(lambda: asyncio.sleep(0, recorder.written == 20))
    await recorder.stop()
    assert [len(batch) for batch in store.batches] == [10, 10, 5]


async def test_full_queue_drops_and_counts_records(
    store: Store,
    recorder: DecisionRecorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(recording, "MAX_WAITING", 10)
    for _ in range(30):
        recorder.record(made())
    assert (recorder.waiting, recorder.dropped) == (10, 20)
    await recorder.stop()
    assert len(store.ids) == 10
    drops = [one for one in caplog.records if "decision records are dropped" in one.message]
    assert [one.levelno for one in drops] == [logging.ERROR]


async def test_end_of_the_drops_is_logged(
    store: Store,
    recorder: DecisionRecorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "toolgate.gateway")
    monkeypatch.setattr(recording, "MAX_WAITING", 10)
    for _ in range(2):
        for _ in range(15):
            recorder.record(made())
        await eventually(lambda: asyncio.sleep(0, recorder.waiting == 0))
    assert [one.message for one in caplog.records if "stored again" in one.message] == [
        "decision records are stored again; 5 were dropped"
    ] * 2
    assert len(store.ids) == 20


async def test_failed_batch_is_written_again(store: Store, recorder: DecisionRecorder) -> None:
    store.fault = StorageFault("the disk is full")
    record = made()
    recorder.record(record)
    await eventually(lambda: asyncio.sleep(0, store.attempts >= 2))
    store.fault = None
    await eventually(lambda: asyncio.sleep(0, recorder.written == 1))
    assert store.ids == [record.id]
    assert recorder.dropped == 0


async def test_batch_that_fails_for_too_long_is_dropped(store: Store) -> None:
    recorder = DecisionRecorder(store, write_timeout=0.0)
    store.fault = StorageFault("the disk is full")
    recorder.record(made())
    await eventually(lambda: asyncio.sleep(0, recorder.dropped == 1))
    store.fault = None
    later = made()
    recorder.record(later)
    await recorder.stop()
    assert (store.ids, recorder.written, recorder.dropped) == ([later.id], 1, 1)


async def test_stopped_recorder_starts_no_task(store: Store) -> None:
    """A conversion is still scheduled when the recorder stops."""
    recorder, loop = DecisionRecorder(store), asyncio.get_running_loop()
    recorder.record(made())
    await recorder.stop()
    started = list[object]()

    def start(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        started.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(start)
    after = asyncio.Event()
    loop.call_later(2 * recording.CONVERSION_INTERVAL, after.set)
    await after.wait()
    loop.set_task_factory(None)
    assert started == []
    assert recorder.written == 1


async def test_record_that_has_no_row_does_not_prevent_others(
    store: Store, recorder: DecisionRecorder
) -> None:
    good = made()
    recorder.record(made(context={"a": object()}))
    recorder.record(good)
    await eventually(lambda: asyncio.sleep(0, recorder.written == 1))
    assert store.ids == [good.id]
    assert recorder.dropped == 1


async def test_stop_writes_everything_that_waits(store: Store, recorder: DecisionRecorder) -> None:
    records = [made() for _ in range(1200)]
    for record in records:
        recorder.record(record)
    await recorder.stop()
    assert store.ids == [record.id for record in records]
    assert (recorder.written, recorder.dropped, recorder.waiting) == (1200, 0, 0)


async def test_stop_with_a_failing_database_ends_and_counts_the_loss(
    store: Store, recorder: DecisionRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "STOP_SECONDS", 0.3)
    store.fault = StorageFault("the disk is full")
    for _ in range(7):
        recorder.record(made())
    await asyncio.wait_for(recorder.stop(), 10)
    assert (recorder.written, recorder.dropped) == (0, 7)


async def test_record_after_the_stop_is_dropped(store: Store, recorder: DecisionRecorder) -> None:
    await recorder.stop()
    recorder.record(made())
    assert (recorder.dropped, store.attempts) == (1, 0)


def test_time_is_that_of_the_id() -> None:
    record = made()
    created, text = build_row(record)[0], time_of_id(record.id)
    assert created == text
    assert text is not None
    assert text.microsecond % 1000 == 0
    assert timedelta() == text - time_of_prefix(record.id[: recording.TIME_DIGITS])


class Observer:
    """An observer that raises an error for each record of one action."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def observe(self, record: DecisionRecord) -> None:
        if record.action == "broken":
            raise ValueError("broken")
        self.seen.append(record.id)


SHADOWED = AUTH._replace(shadow_id=new_id())


async def test_observer_receives_the_decisions_under_a_shadow_policy(store: Store) -> None:
    observer = Observer()
    recorder = DecisionRecorder(store, None, observer)
    queued, stored, other = made(auth=SHADOWED), made(auth=SHADOWED), made()
    for record in (queued, other):
        recorder.record(record)
    recorder.observe(stored)
    recorder.observe(made())
    assert observer.seen == []
    await recorder.stop()
    assert sorted(observer.seen) == sorted([queued.id, stored.id])
    assert store.ids == [queued.id, other.id]


async def test_error_of_the_observer_does_not_prevent_a_record(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    observer = Observer()
    recorder = DecisionRecorder(store, None, observer)
    broken, whole = made(auth=SHADOWED, action="broken"), made(auth=SHADOWED)
    recorder.record(broken)
    recorder.record(whole)
    recorder.observe(broken)
    await recorder.stop()
    assert store.ids == [broken.id, whole.id]
    assert observer.seen == [whole.id]
    assert (recorder.observer_errors, recorder.dropped) == (2, 0)
    assert "the shadow policy cannot be compared with a decision" in caplog.text
