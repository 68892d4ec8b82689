"""Lengths of time in words, and shares of a bar."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from toolgate_service.console.overview.chart import KINDS
from toolgate_service.counts.reading import Counts

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Share(NamedTuple):
    """A part of a bar, in percent of its room."""

    kind: str
    x: float
    width: float


def span(length: timedelta) -> str:
    """Return a length of time in its two largest units: "4 min 10 s", "2 h", "0 s"."""
    left = max(0, round(length.total_seconds()))
    words = []
    for seconds, unit in _UNITS:
        number, left = divmod(left, seconds)
        if number:
            words.append(f"{number} {unit}")
        if words and (not number or len(words) == 2):  # noqa: PLR2004 - two units, as promised
            break
    return " ".join(words) or "0 s"


def shares_of(counts: Counts, whole: int) -> Sequence[Share]:
    """Return what of a bar is allowed, held and blocked.

    Args:
        counts: what is drawn.
        whole: what the bar's whole room stands for.
    """
    found, at = [], 0.0
    for kind in KINDS:
        width = 100 * getattr(counts, kind) / whole
        if width:
            found.append(Share(kind, round(at, 2), round(width, 2)))
            at += width
    return found
