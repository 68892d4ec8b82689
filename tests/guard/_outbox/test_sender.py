"""What is sent, when, and what becomes of what is not taken."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import until

from toolgate._outbox import Busy
from toolgate._outbox.delivery import Delivery, Pace, Result
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.sender import Sender
from toolgate.errors import ConfigurationError, GatewayProtocolError, GatewayUnavailable

from .conftest import DOWN, TAKEN, Taker, die, entry

Make = Callable[..., Any]


def test_sent_in_the_background_in_order(outbox: Outbox, sender: Sender, taker: Taker) -> None:
    """Whoever records waits for nothing; what was recorded goes out in order, each once."""
    entries = [entry() for _ in range(5)]
    for each in entries:
        outbox.add(each)
        sender.wake()
    until(lambda: len(taker.taken) == 5)
    assert taker.taken == [each.key for each in entries]
    until(lambda: not outbox.waits())


def test_many_go_together(make_outbox: Make, make_sender: Make, taker: Taker) -> None:
    """At most a hundred entries are in one request, and no request outgrows what the gateway takes."""
    outbox = make_outbox(rows=1_000)
    for _ in range(250):
        outbox.add(entry())
    for _ in range(10):
        outbox.add(entry(body="x" * 60_000))
    sender = make_sender(outbox)
    assert sender.flush(30)
    assert len(taker.taken) == 260
    assert [len(each) for each in taker.sent[:2]] == [100, 100]
    assert all(sum(len(body) for _, body in each) < 250 * 1024 for each in taker.sent)
    assert len(taker.sent) < 10


@pytest.mark.parametrize("old", [False, True])
def test_what_is_coming_goes_together(
    outbox: Outbox, sender: Sender, taker: Taker, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """While calls go on, each request waits for company, so that they and the gateway are left alone.

    What is old does not wait for that.
    """
    events: list[object] = []
    coming = [entry() for _ in range(3)]
    wait = sender._signals.wait

    def reply(entries: Any) -> Delivery:
        events.append(len(entries))
        if coming:
            outbox.add(coming.pop())
        return Delivery([TAKEN] * len(entries))

    def waits(seconds: float, *, hurried_only: bool = True) -> bool:
        if hurried_only:
            events.append("waits")
        return wait(seconds, hurried_only=hurried_only)

    taker.usual = reply
    monkeypatch.setattr(sender._signals, "wait", waits)
    outbox.add(entry())
    if old:
        outbox.age()
        outbox.add(entry())
    sender.wake()
    until(lambda: not coming and not outbox.waits())
    expected = [1, 1, 1, 1, 1] if old else [1, "waits", 1, "waits", 1, "waits", 1]
    assert events[: len(expected)] == expected


def test_whoever_flushes_does_not_wait_for_company(
    outbox: Outbox, sender: Sender, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until nothing waits, what is recorded meanwhile is sent at once as well."""
    events: list[object] = []
    coming = [entry() for _ in range(3)]

    def reply(entries: Any) -> Delivery:
        events.append(len(entries))
        if coming:
            outbox.add(coming.pop())
        return Delivery([TAKEN] * len(entries))

    taker.usual = reply
    wait = sender._signals.wait
    monkeypatch.setattr(
        sender._signals,
        "wait",
        lambda seconds, *, hurried_only=True: (
            events.append("waits") if hurried_only else wait(seconds, hurried_only=False)
        ),
    )
    outbox.add(entry())
    assert sender.flush(30)
    assert events[:4] == [1, 1, 1, 1]


def test_an_outage(outbox: Outbox, sender: Sender, taker: Taker, caplog: pytest.LogCaptureFixture) -> None:
    """What is not taken waits and goes out under the same key; it is told once, and who flushes learns of it."""
    taker.usual = DOWN
    outbox.add(entry("one"))
    assert not sender.flush(30)
    outbox.add(entry("two"))
    assert not sender.flush(30)
    assert [each.__dict__["toolgate_event"] for each in caplog.records] == ["record_failed"]
    taker.usual = lambda entries: Delivery([TAKEN] * len(entries))
    assert sender.flush(30)
    assert len(taker.taken) == 2
    assert len({key for each in taker.sent for key, _ in each}) == 2


@pytest.mark.parametrize(
    "delivery",
    [
        DOWN,
        Delivery((), GatewayUnavailable("slow down", status=429), pause=0.01),
        Delivery((), GatewayUnavailable("broken", status=500)),
        Delivery((), ConfigurationError("key"), lasting=True),
        Delivery((), GatewayProtocolError("month is full", status=403), lasting=True),
        Delivery([Result(why="403: month is full")]),
        Delivery([Result(why="503: later")]),
    ],
    ids=["down", "429", "500", "401", "403", "403 of one", "503 of one"],
)
def test_what_may_pass_waits(outbox: Outbox, sender: Sender, taker: Taker, delivery: Delivery) -> None:
    """Nothing that may pass costs an entry."""
    taker.replies = [delivery] * 3
    outbox.add(entry())
    until(lambda: sender.flush(30))
    assert len(taker.sent) == 4
    assert len(taker.taken) == 1


LASTING = Delivery((), ConfigurationError("key"), lasting=True)
TOO_LARGE = Delivery((), GatewayProtocolError("too large", status=413), too_large=True)


def busy_once(monkeypatch: pytest.MonkeyPatch, outbox: Outbox) -> None:
    batch, busy = outbox.batch, [True]

    def busily(**details: Any) -> Any:
        if busy:
            busy.clear()
            raise Busy("another thread is writing")
        return batch(**details)

    monkeypatch.setattr(outbox, "batch", busily)


@pytest.mark.parametrize("hindered", ["busy", "too large"])
def test_whoever_waits_is_not_forgotten(
    outbox: Outbox, sender: Sender, taker: Taker, monkeypatch: pytest.MonkeyPatch, hindered: str
) -> None:
    """A flush in the long pause after a refused key is seen to, also when its first turn comes to nothing."""
    taker.replies = [LASTING]
    outbox.add(entry())
    assert not sender.flush(30)
    if hindered == "busy":
        busy_once(monkeypatch, outbox)
    else:
        outbox.add(entry())
        taker.replies = [TOO_LARGE]
    # Less than the pause.
    assert sender.flush(12)


def test_a_request_that_fails_at_once_is_not_waited_for_again(
    outbox: Outbox, sender: Sender, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hurry whose request has failed before the caller looks is over."""
    taker.usual = LASTING
    outbox.add(entry())
    hurry = sender._signals.hurry

    def hurried() -> None:
        hurry()
        if threading.current_thread() is threading.main_thread():
            sender.wake()
            until(lambda: sender._failures)

    monkeypatch.setattr(sender._signals, "hurry", hurried)
    assert sender.is_done(sender.hurry()) is False


def test_what_is_never_taken_is_laid_aside(
    outbox: Outbox, sender: Sender, taker: Taker, caplog: pytest.LogCaptureFixture
) -> None:
    """Of many in a request only the bad one is laid aside, with its reason; it is told without arguments."""
    for name in ("one", "bad", "two"):
        outbox.add(entry(name, password="hunter22"))
    taker.replies = [Delivery([TAKEN, Result(hopeless=True, why="404: Agent not found"), TAKEN])]
    assert sender.flush(30)
    assert len(taker.taken) == 2
    rows = outbox._do(lambda db: db.execute("SELECT state, reason FROM entries").fetchall())
    assert rows == [(2, "404: Agent not found")]
    [told] = caplog.records
    assert told.levelno == logging.ERROR
    assert (told.__dict__["toolgate_action"], "Agent not found" in told.getMessage()) == ("bad", True)
    assert "hunter22" not in caplog.text


def test_one_that_is_not_taken_holds_nothing_up(make_outbox: Make, make_sender: Make, taker: Taker) -> None:
    """A hundred entries the gateway cannot take now do not stand before the others."""
    outbox = make_outbox(rows=1_000)
    stuck = {(one := entry("stuck")).key: outbox.add(one) for _ in range(100)}
    outbox.add(entry("fine"))
    taker.usual = lambda entries: Delivery(
        [Result(why="503") if key in stuck else TAKEN for key, _ in entries]
    )
    sender = make_sender(outbox)
    sender.wake()
    until(lambda: len(taker.taken) == 1)
    assert outbox.count() == 100


def test_a_request_that_is_too_large_is_divided(outbox: Outbox, sender: Sender, taker: Taker) -> None:
    """Refused as a whole, entries go out in smaller requests until the one at fault is alone."""
    for name in ("one", "bad", "two", "three"):
        outbox.add(entry(name))

    def strict(entries: Any) -> Delivery:
        if len(entries) > 1 and any('"bad"' in body for _, body in entries):
            return Delivery((), GatewayProtocolError("no", status=400), too_large=True)
        return Delivery([Result(hopeless='"bad"' in body, taken='"bad"' not in body) for _, body in entries])

    taker.usual = strict
    assert sender.flush(30)
    assert len(taker.taken) == 3


def test_what_a_dead_process_left_is_sent(make_outbox: Make, make_sender: Make, taker: Taker) -> None:
    """Flushing takes over what others left, and sends it."""
    dead, heir = make_outbox(), make_outbox()
    left = entry("unknown")
    dead.intend(left)
    die(dead)
    assert make_sender(heir).flush(30)
    assert taker.taken == [left.key]


def test_whose_the_key_is_is_asked_first(make_outbox: Make, make_sender: Make, taker: Taker) -> None:
    """A process that has heard nothing yet asks with no entry, before it sends what another process left."""
    from dataclasses import replace

    from .conftest import OURS

    dead = make_outbox()
    dead.add(entry())
    die(dead)
    stranger = make_outbox(replace(OURS, organization=None))
    named = {"x-toolgate-organization": "org-2", "x-toolgate-environment": "production"}
    taker.usual = lambda entries: Delivery([TAKEN] * len(entries), headers=named)
    assert make_sender(stranger).flush(30)
    assert (taker.sent, taker.taken) == ([[]], [])


def test_new_entries_go_before_old_ones(make_outbox: Make, make_sender: Make, taker: Taker) -> None:
    """What a process records now is not held up by what others left."""
    dead, heir = make_outbox(), make_outbox()
    old, new = entry("old"), entry("new")
    dead.add(old)
    die(dead)
    heir.add(new)
    assert make_sender(heir).flush(30)
    assert taker.taken == [new.key, old.key]


def test_a_fault_of_ours_ends_nothing(
    outbox: Outbox, sender: Sender, taker: Taker, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong in the background is told, and tried again."""

    def broken(entries: Any) -> Delivery:
        raise ZeroDivisionError

    taker.replies = [broken]
    outbox.add(entry())
    sender.wake()
    until(lambda: "tried again" in caplog.text)
    assert sender.flush(30)
    assert len(taker.taken) == 1


def test_recording_never_waits_for_sending(outbox: Outbox, sender: Sender, taker: Taker) -> None:
    """While a request is under way entries are written as ever."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(entries: Any) -> Delivery:
        inside.set()
        assert go_on.wait(30)
        return Delivery([TAKEN] * len(entries))

    taker.usual = slow
    outbox.add(entry())
    sender.wake()
    assert inside.wait(30)
    for _ in range(20):
        outbox.finish(entry(), outbox.intend(entry()))
        sender.wake()
    assert taker.taken == []
    go_on.set()
    assert sender.flush(30)
    assert len(taker.taken) == 21


def test_the_thread_ends_when_there_is_nothing_to_do(
    outbox: Outbox, sender: Sender, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle process has no thread; the next entry starts one."""
    monkeypatch.setattr("toolgate._outbox.sender._IDLE", 0.01)
    for count in (1, 2):
        outbox.add(entry())
        sender.wake()
        until(lambda wanted=count: sender._thread is None and len(taker.taken) == wanted)


def headers(limit: int, left: int, reset: int) -> dict[str, str]:
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(left),
        "x-ratelimit-reset": str(reset),
    }


@pytest.mark.parametrize(("left", "pause"), [(100, 0.0), (51, 0.0), (50, 40.0), (0, 40.0)], ids=str)
def test_half_of_the_rate_is_left_to_the_calls(left: int, pause: float) -> None:
    """What is old waits for the next minute once half of this one is used; what is new does not."""
    pace = Pace(clock=lambda: 5.0, wall=lambda: 1_000.0)
    pace.read_headers(headers(100, left, 1_040))
    assert pace.pause(old=True) == pause
    assert pace.pause(old=False) == 0


def test_a_window_that_is_over_is_forgotten() -> None:
    """However wrong a clock is, nothing old waits for more than a minute."""
    now = [0.0]
    pace = Pace(clock=lambda: now[0], wall=lambda: 1_000.0)
    pace.read_headers(headers(100, 0, 999_999))
    now[0] = 60.0
    assert pace.pause(old=True) == 0


def test_pauses_grow_and_are_spread() -> None:
    """The pause after each fault is up to twice the last one, half a minute at most, and as long as was asked."""
    pace = Pace(clock=lambda: 0.0)
    pauses = []
    for _ in range(15):
        pace.failed()
        pauses.append(pace.pause())
    longest = [min(30.0, 0.1 * 2**n) for n in range(15)]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))
    pace.failed(asked=90)
    assert pace.pause(hurried=True) == pace.pause() == 90
    pace.worked()
    assert pace.pause() == 0
    pace.failed(lasting=True)
    pace.nudge()
    assert (pace.pause() >= 15, pace.pause(hurried=True)) == (True, 0)
