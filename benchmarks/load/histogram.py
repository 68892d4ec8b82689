"""Latencies in buckets that are never wider than one part in 256 of what they hold."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

_BITS = 8


@dataclass
class Histogram:
    """Histogram of latencies, whose size does not depend on their number.

    Attributes:
        counts: How many by bucket.
        total: How many in all.
    """

    counts: Counter[int] = field(default_factory=Counter)
    total: int = 0

    def add(self, nanoseconds: int) -> None:
        """Count one.

        Args:
            nanoseconds: The latency; below 0 counts as 0.
        """
        self.counts[_bucket(max(0, nanoseconds))] += 1
        self.total += 1

    def merge(self, other: Histogram) -> None:
        """Count all that another has.

        Args:
            other: The other.
        """
        self.counts.update(other.counts)
        self.total += other.total

    def quantile(self, share: float) -> int:
        """The latency in nanoseconds that this share does not exceed, to one part in 256.

        Args:
            share: For instance 0.99.

        Raises:
            ValueError: Nothing was counted.
        """
        if not self.total:
            raise ValueError("the histogram is empty: nothing was answered")
        # Rounded first: 0.07 times 100 is a little more than 7.
        wanted = max(1, math.ceil(round(self.total * share, 6)))
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return _middle(bucket)
        raise AssertionError("the buckets hold fewer than they count")


def _bucket(value: int) -> int:
    extra = max(0, value.bit_length() - _BITS - 1)
    return (extra << (_BITS + 1)) + (value >> extra)


def _middle(bucket: int) -> int:
    extra, rest = bucket >> (_BITS + 1), bucket & ((1 << (_BITS + 1)) - 1)
    return (rest << extra) + ((1 << extra) >> 1)
