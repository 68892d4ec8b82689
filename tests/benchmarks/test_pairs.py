"""Two sides measured in turn, and the interval of their ratio."""

import itertools
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load.generator import Slice
from load.histogram import Histogram
from load.pairs import Side, in_turn, interval, ratio
from load.rows import Bar


@pytest.mark.parametrize("count", range(1, 13))
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    """Of all ways in which values may lie below and above a median, the interval holds it in the share it names."""
    out, confidence = interval(count)
    ways = [sorted(way) for way in itertools.product((-1, 1), repeat=count)]
    held = sum(way[out] < 0 < way[count - 1 - out] for way in ways)
    assert held / len(ways) == pytest.approx(confidence)


@given(st.integers(6, 100))
def test_the_interval_is_the_narrowest_that_is_sure_enough(count: int) -> None:
    """From six values on it is 95 % sure, and would not be if it left out one more at either end."""
    out, confidence = interval(count)
    assert confidence >= 0.95
    assert sum(comb(count, below) for below in range(out + 2, count - out - 1)) / 2**count < 0.95


def test_twenty_pairs_leave_out_five_at_either_end() -> None:
    """As the tables of order statistics say: the 6th and the 15th of twenty."""
    assert interval(20) == (5, pytest.approx(0.9586, abs=1e-4))
    found = ratio([float(n) for n in range(1, 21)], [1.0] * 20)
    assert (found.median, found.low, found.high) == (10.5, 6.0, 15.0)


def test_ratios_are_taken_pair_by_pair() -> None:
    """What slows both slices of a pair changes nothing."""
    found = ratio([1.0, 10.0, 100.0], [2.0, 20.0, 200.0])
    assert (found.median, found.low, found.high) == (0.5, 0.5, 0.5)


async def test_sides_are_loaded_in_turn_and_each_goes_first_in_every_second_pair() -> None:
    """Neither side always has the caches that the other left."""
    order: list[str] = []

    def side(name: str, answers: int) -> Side:
        async def loaded(seconds: float) -> Slice:
            order.append(name)
            found = Slice((Histogram(),), seconds)
            for _ in range(answers):
                found.latencies[0].add(1000)
            return found

        return Side(name, loaded, lambda one: one.rate)

    told: list[int] = []
    ours, other = await in_turn(side("a", 6), side("b", 3), 3, 0.5, told.append)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert told == [1, 2, 3]
    assert (ours.figures, other.figures, ours.rate) == ([12.0] * 3, [6.0] * 3, 12.0)


@pytest.mark.parametrize(
    ("bar", "judged", "reached"),
    [
        (Bar(0.7, at_least=True), 0.75, True),
        (Bar(0.7, at_least=False), 0.65, True),
        (Bar(0.8, at_least=True), 0.75, False),
        (Bar(0.6, at_least=False), 0.65, False),
        (Bar(0.71, at_least=True, at_median=True), 0.70, False),
    ],
)
def test_a_bar_is_judged_at_the_lenient_end(bar: Bar, judged: float, reached: bool) -> None:
    """A lower bound is held against the interval's upper end, an upper bound against its lower one."""
    value = bar.judged(0.70, 0.65, 0.75)
    assert (value, bar.reached(value)) == (judged, reached)
