"""The circuit breaker, with a clock that the test sets."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from toolgate._http.retry import CircuitBreaker, CircuitOpen


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    """One whose pauses are as long as they can be."""
    return CircuitBreaker("https://gateway.example", clock, lambda _, most: most)


def fails(breaker: CircuitBreaker, clock: Clock, *, took: float, probe: bool = False) -> None:
    began = clock.now
    clock.now += took
    breaker.record_failure(began, took, "no response", probe=probe, reached=False)


def pauses(breaker: CircuitBreaker, clock: Clock, took: float, count: int) -> list[float]:
    """How long it is silent after each of so many faults in a row."""
    found = list[float]()
    fails(breaker, clock, took=took)
    for _ in range(count):
        began = clock.now
        while True:
            try:
                assert breaker.admit(5)
                break
            except CircuitOpen:
                clock.now += 0.05
        found.append(round(clock.now - began, 2))
        fails(breaker, clock, took=took, probe=True)
    return found


def test_closed_breaker_admits_every_call(breaker: CircuitBreaker) -> None:
    """None of them is a probe."""
    assert [breaker.admit(5) for _ in range(3)] == [False] * 3


def test_pauses_of_a_slow_outage_grow_to_thirty_seconds(breaker: CircuitBreaker, clock: Clock) -> None:
    assert pauses(breaker, clock, 5.0, 7) == pytest.approx([1, 2, 4, 8, 16, 30, 30], abs=0.06)


def test_fast_outage_is_probed_by_the_next_call(breaker: CircuitBreaker, clock: Clock) -> None:
    """Later pauses grow to one second."""
    assert pauses(breaker, clock, 0.0, 8) == pytest.approx([0, 0.05, 0.1, 0.2, 0.4, 0.8, 1, 1], abs=0.06)


def test_pauses_are_random_between_half_and_all_of_the_longest(clock: Clock) -> None:
    asked = list[tuple[float, float]]()

    def least(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    breaker = CircuitBreaker("https://gateway.example", clock, least)
    fails(breaker, clock, took=5)
    clock.now += 0.5
    assert breaker.admit(5)
    assert asked == [(0.5, 1.0)]


def test_one_call_probes_and_the_others_fail_at_once(breaker: CircuitBreaker, clock: Clock) -> None:
    """The error contains the start of the outage and the time of the next probe."""
    fails(breaker, clock, took=5)
    with pytest.raises(
        CircuitOpen,
        match=r"no response since \d{4}-\d\d-\d\dT.*the SDK tries again in 1.0 s; last error: no response",
    ):
        breaker.admit(5)
    clock.now += 1
    assert breaker.admit(5)
    with pytest.raises(CircuitOpen, match="another call is trying again now"):
        breaker.admit(5)
    breaker.record_response()
    assert not breaker.admit(5)


def test_probe_without_a_result_leaves_the_next_probe_to_another_call(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    """It was abandoned, or its time is over."""
    fails(breaker, clock, took=0)
    assert breaker.admit(5)
    breaker.abandon_probe()
    assert breaker.admit(5)
    clock.now += 4.9
    with pytest.raises(CircuitOpen):
        breaker.admit(5)
    clock.now += 0.2
    assert breaker.admit(5)


def test_failure_is_ignored_if_another_call_got_a_response_meanwhile(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    began = clock.now
    clock.now += 2
    breaker.record_response()
    clock.now += 3
    breaker.record_failure(began, 5, "no response", probe=False, reached=False)
    assert not breaker.is_open


def test_response_during_the_opening_closes_the_breaker(clock: Clock) -> None:

    def answered_meanwhile(_: float, most: float) -> float:
        breaker.record_response()
        return most

    breaker = CircuitBreaker("https://gateway.example", clock, answered_meanwhile)
    fails(breaker, clock, took=5)
    assert not breaker.is_open


def test_calls_that_began_before_the_outage_change_nothing(breaker: CircuitBreaker, clock: Clock) -> None:
    """They neither lengthen a pause nor end a probe."""
    fails(breaker, clock, took=5)
    for _ in range(10):
        breaker.record_failure(clock.now - 5, 5, "no response", probe=False, reached=False)
    clock.now += 1
    assert breaker.admit(5)
    breaker.record_failure(clock.now - 5, 5, "no response", probe=False, reached=False)
    with pytest.raises(CircuitOpen):
        breaker.admit(5)


def test_first_slow_failure_after_fast_ones_starts_with_the_first_pause(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    pauses(breaker, clock, 0.0, 10)
    clock.now += 1
    assert breaker.admit(5)
    fails(breaker, clock, took=5, probe=True)
    clock.now += 1
    assert breaker.admit(5)


def test_outage_is_logged_when_it_begins_and_when_it_ends(
    breaker: CircuitBreaker, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fails(breaker, clock, took=5)
    for _ in range(3):
        breaker.record_failure(clock.now - 5, 5, "no response", probe=False, reached=False)
    breaker.record_response()
    breaker.record_response()
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == 2
    assert "the gateway at 'https://gateway.example' is unavailable (no response)" in said[0]
    assert "is available again, after 5.0 s" in said[1]


def test_one_of_many_threads_probes(breaker: CircuitBreaker, clock: Clock) -> None:
    fails(breaker, clock, took=0)
    together, probes = threading.Barrier(16), list[bool]()

    def call() -> None:
        together.wait()
        try:
            probes.append(breaker.admit(5))
        except CircuitOpen:
            probes.append(False)

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(probes) == [False] * 15 + [True]


def test_child_of_a_fork_has_no_lock_of_another_thread(breaker: CircuitBreaker, clock: Clock) -> None:
    """It keeps the state of its parent and has a probe of its own."""
    fails(breaker, clock, took=0)
    assert breaker.admit(5)
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with breaker._lock():
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if breaker.is_open and breaker.admit(5) else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done.set()
    thread.join()
    assert status == 0


def test_probe_that_the_garbage_collector_ends_in_another_call_causes_no_deadlock(clock: Clock) -> None:

    class Probe:
        def __init__(self) -> None:
            self.myself = self

        def __del__(self) -> None:
            ended.append(breaker.abandon_probe())

    def collect(_: float, most: float) -> float:
        gc.collect()
        return most

    ended = list[None]()
    breaker = CircuitBreaker("https://gateway.example", clock, collect)
    gc.disable()
    try:
        Probe()
        fails(breaker, clock, took=5)
    finally:
        gc.enable()
    assert ended == [None]
    assert breaker.is_open
