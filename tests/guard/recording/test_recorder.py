from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolgate import ConfigurationError, GatewayProtocolError, GatewayUnavailable
from toolgate.recording.backlog import Backlog
from toolgate.recording.entries import Entry, new_entry
from toolgate.recording.recorder import Recorder


class Sender:
    """Takes entries until told otherwise."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.tried: list[Entry] = []
        self.error: BaseException | None = None
        self.seconds: list[float | None] = []

    def log(self, entry: Entry, seconds: float | None = None) -> dict[str, Any]:
        self.tried.append(entry)
        self.seconds.append(seconds)
        if self.error is not None:
            raise self.error
        self.taken.append(str(entry.body["action"]))
        return {}


class AsyncSender:
    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def log(self, entry: Entry, seconds: float | None = None) -> dict[str, Any]:
        return self._sender.log(entry, seconds)


Act = Callable[..., Awaitable[Any]]


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture(params=["sync", "async"])
def act(request: pytest.FixtureRequest, sender: Sender) -> Act:
    """Calls `record` or `flush` of one recorder, or their asynchronous twins."""
    recorder = Recorder(lambda: sender, lambda: AsyncSender(sender), Backlog(bound=50), clock=lambda: 0.0)

    async def call(operation: str, argument: Any) -> Any:
        if request.param == "sync":
            return getattr(recorder, operation)(argument)
        return await getattr(recorder, f"a{operation}")(argument)

    return call


def entry(action: str = "a.b") -> Entry:
    return new_entry(action=action, agent_id="agent-1", status="success", context={"password": "hunter22"})


def test_entries_are_told_apart() -> None:
    """Each entry has its own key of 128 random bits and the time it happened, in UTC."""
    one, other = entry(), entry()
    assert len(one.key) == 32
    assert one.key != other.key
    assert str(one.body["occurred_at"]).endswith("Z")


async def test_sent_at_once(act: Act, sender: Sender) -> None:
    """An entry goes out when it is recorded."""
    await act("record", entry("one"))
    assert sender.taken == ["one"]
    assert await act("flush", 1)


@pytest.mark.parametrize(
    "error",
    [
        GatewayUnavailable("down"),
        GatewayUnavailable("slow down", status=429),
        GatewayProtocolError("month is full", status=403),
        GatewayProtocolError("html", status=200),
        ConfigurationError("key"),
        RuntimeError("bug"),
    ],
    ids=repr,
)
async def test_kept_and_sent_later(act: Act, sender: Sender, error: Exception) -> None:
    """What may pass keeps the entry; it goes out before the next one, under the same key."""
    sender.error = error
    await act("record", entry("one"))
    assert not await act("flush", 1)
    sender.error = None
    await act("record", entry("two"))
    assert sender.taken == ["one", "two"]
    assert len({each.key for each in sender.tried if each.body["action"] == "one"}) == 1
    assert await act("flush", 1)


@pytest.mark.parametrize("status", [400, 404, 413])
async def test_hopeless_entries_are_dropped(
    act: Act, sender: Sender, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry the gateway will never take is dropped with an error and holds nothing up."""
    sender.error = GatewayProtocolError("bad entry", status=status)
    await act("record", entry("one"))
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
    assert await act("flush", 1)


async def test_warning_without_secrets(act: Act, sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    """A record failure is a warning that names action and agent and no argument."""
    sender.error = GatewayUnavailable("down")
    await act("record", entry("one"))
    warning = caplog.records[0]
    assert (warning.name, warning.levelno) == ("toolgate", logging.WARNING)
    assert (warning.__dict__["toolgate_event"], warning.__dict__["toolgate_action"]) == (
        "record_failed",
        "one",
    )
    assert "hunter22" not in caplog.text


async def test_bounded(act: Act, sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    """A full backlog loses its oldest entries, with a warning that counts them."""
    sender.error = GatewayUnavailable("down")
    for number in range(53):
        await act("record", entry(str(number)))
    sender.error = None
    assert await act("flush", 1)
    assert sorted(sender.taken, key=int) == [str(number) for number in range(3, 53)]
    assert "3 log entries lost" in caplog.text


async def test_one_outage_costs_one_attempt(act: Act, sender: Sender) -> None:
    """While the gateway is down a call pays for one attempt, not for everything that waits."""
    sender.error = GatewayUnavailable("down")
    for _ in range(5):
        await act("record", entry())
    assert len(sender.tried) == 5


async def test_catching_up_is_spread(act: Act, sender: Sender) -> None:
    """After an outage one call takes some old entries along, not all."""
    sender.error = GatewayUnavailable("down")
    for number in range(30):
        await act("record", entry(str(number)))
    sender.error = None
    await act("record", entry("new"))
    assert len(sender.taken) == 11
    assert sender.taken[-1] == "new"


async def test_one_bad_entry_does_not_stop_the_others(act: Act, sender: Sender) -> None:
    """An entry that fails goes to the end of the line."""
    sender.error = GatewayUnavailable("down")
    await act("record", entry("one"))
    await act("record", entry("two"))
    sender.tried.clear()
    await act("flush", 1)
    await act("flush", 1)
    assert [each.body["action"] for each in sender.tried] == ["two", "one"]


async def test_flush_within_its_time(act: Act, sender: Sender) -> None:
    """Flushing gives each entry what is left of its time, and none after it."""
    sender.error = GatewayUnavailable("down")
    await act("record", entry())
    sender.seconds.clear()
    await act("flush", 3)
    await act("flush", 0)
    assert sender.seconds == [3]


async def test_interrupted_while_recording(act: Act, sender: Sender) -> None:
    """An entry whose sending is cancelled or interrupted still waits."""
    sender.error = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await act("record", entry("one"))
    sender.error = None
    assert await act("flush", 1)
    assert sender.taken == ["one"]


async def test_kept_without_sending(sender: Sender) -> None:
    """An entry can be kept where nothing may be awaited; the next one takes it along."""
    recorder = Recorder(lambda: sender, lambda: AsyncSender(sender))
    recorder.keep(entry("one"))
    assert sender.taken == []
    await recorder.arecord(entry("two"))
    assert sender.taken == ["one", "two"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_one_deadline_for_all_a_call_takes_along(sender: Sender, kind: str) -> None:
    """Old entries come first, all of them with the new one get the time of one request, and the rest stays."""
    now = iter(range(100))
    backlog = Backlog()
    for number in range(8):
        backlog.add(entry(str(number)))
    recorder = Recorder(
        lambda: sender, lambda: AsyncSender(sender), backlog, clock=lambda: float(next(now)), timeout=4.5
    )
    if kind == "sync":
        recorder.record(entry("new"))
    else:
        await recorder.arecord(entry("new"))
    assert sender.taken == ["0", "1", "2", "3"]
    assert sender.seconds == [3.5, 2.5, 1.5, 0.5]
    assert [each.body["action"] for each in backlog.waiting()] == ["4", "5", "6", "7", "new"]
