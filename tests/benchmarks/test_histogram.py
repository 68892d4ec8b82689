"""The benchmarks' histogram of latencies."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load.histogram import Histogram

LATENCIES = st.lists(st.integers(0, 10**11), min_size=1, max_size=200)


def histogram(latencies: list[int]) -> Histogram:
    found = Histogram()
    for one in latencies:
        found.add(one)
    return found


@given(LATENCIES, st.integers(1, 1000))
def test_a_quantile_is_that_of_the_sorted_values(latencies: list[int], thousandths: int) -> None:
    """Every quantile is the value at that place in order, to one part in 256."""
    place = math.ceil(len(latencies) * thousandths / 1000)
    exact = sorted(latencies)[place - 1]
    assert histogram(latencies).quantile(thousandths / 1000) == pytest.approx(exact, rel=1 / 256, abs=1)


@given(LATENCIES, LATENCIES)
def test_merged_histograms_hold_the_values_of_both(one: list[int], other: list[int]) -> None:
    """What slices counted apart is the same as counted in one."""
    merged = histogram(one)
    merged.merge(histogram(other))
    assert merged == histogram(one + other)


def test_an_empty_histogram_has_no_quantile() -> None:
    """A server that answered nothing has no latency, rather than one of 0."""
    with pytest.raises(ValueError, match="nothing was answered"):
        Histogram().quantile(0.5)
