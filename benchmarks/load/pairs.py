"""Two things measured in turn, and what their ratio is: the median of the pairs, and the interval it lies in."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import comb

from load.generator import Slice
from load.histogram import Histogram

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Side:
    """One of two things that are compared.

    Attributes:
        label: What it is.
        slice: Function that loads the side for a number of seconds.
        figure: Function that returns the compared figure of a slice.
    """

    label: str
    slice: Callable[[float], Awaitable[Slice]]
    figure: Callable[[Slice], float]


@dataclass
class Seen:
    """Measurements of the slices of one side.

    Attributes:
        figures: One a slice.
        latencies: Of all slices, by the request's place among those asked in turn.
        late: How late the generator itself was, of all slices.
        busy: The share of its core that the load took, by slice.
        seconds: How long the slices were, together.
    """

    figures: list[float] = field(default_factory=list)
    latencies: list[Histogram] = field(default_factory=list)
    late: Histogram = field(default_factory=Histogram)
    busy: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, side: Side, one: Slice, busy: float) -> None:
        """Take a slice in.

        Args:
            side: Whose it is.
            one: What it showed.
            busy: The share of its core that the load took.
        """
        self.figures.append(side.figure(one))
        self.latencies = self.latencies or [Histogram() for _ in one.latencies]
        for total, part in zip(self.latencies, one.latencies, strict=True):
            total.merge(part)
        self.late.merge(one.late)
        self.busy.append(busy)
        self.seconds += one.seconds

    @property
    def rate(self) -> float:
        """Answers a second over all slices."""
        return sum(one.total for one in self.latencies) / self.seconds


@dataclass(frozen=True)
class Ratio:
    """A median and where it lies.

    Attributes:
        median: Of the pairs' ratios.
        low: The interval's lower end.
        high: Its upper end.
        confidence: How sure it is; less than 95 % only with five pairs or fewer.
    """

    median: float
    low: float
    high: float
    confidence: float


async def in_turn(
    ours: Side, other: Side, pairs: int, seconds: float, told: Callable[[int], None]
) -> tuple[Seen, Seen]:
    """Measure two sides in turn; which one goes first changes from pair to pair.

    Args:
        ours: One.
        other: The other.
        pairs: How many slices of each.
        seconds: How long a slice is.
        told: Callback after each pair, with the number of pairs.
    """
    seen = {side.label: Seen() for side in (ours, other)}
    for pair in range(pairs):
        for side in (ours, other) if pair % 2 == 0 else (other, ours):
            one, busy = await _alone(side, seconds)
            seen[side.label].add(side, one, busy)
        told(pair + 1)
    return seen[ours.label], seen[other.label]


async def _alone(side: Side, seconds: float) -> tuple[Slice, float]:
    gc.disable()
    try:
        wall, used = time.perf_counter(), time.process_time()
        one = await side.slice(seconds)
        return one, (time.process_time() - used) / (time.perf_counter() - wall)
    finally:
        gc.enable()


def ratio(ours: Sequence[float], other: Sequence[float]) -> Ratio:
    """The median of the ratios pair by pair, with its interval.

    Args:
        ours: Figures of one side.
        other: Those of the other, in the same order.
    """
    ratios = sorted(one / base for one, base in zip(ours, other, strict=True))
    out, confidence = interval(len(ratios))
    return Ratio(statistics.median(ratios), ratios[out], ratios[len(ratios) - 1 - out], confidence)


def interval(count: int) -> tuple[int, float]:
    """Return the number of sorted values to exclude at each end of the interval of a median, and its confidence.

    The interval uses order statistics, so it assumes only that the values are independent.

    Args:
        count: How many values there are.

    Raises:
        ValueError: There are none.
    """
    if count < 1:
        raise ValueError("a median of nothing has no interval")
    out, outside = 0, 2 * 0.5**count
    while out + 1 <= (count - 1) // 2:
        more = outside + 2 * comb(count, out + 1) * 0.5**count
        if more > 1 - CONFIDENCE:
            break
        out, outside = out + 1, more
    return out, max(0.0, 1 - outside)
