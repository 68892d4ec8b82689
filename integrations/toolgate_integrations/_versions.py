"""Versions of distributions, as far as PEP 440 is needed: `packaging`, which knows all of it, is not always here."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["next_series", "order", "series"]


def order(text: str) -> tuple[int, tuple[int, ...], bool]:
    """What versions are compared by: what leads up to a release comes before it, what is mended after it does not."""
    found = _VERSION.match(text)
    if found is None:
        return (0, (), False)
    numbers = _numbers(found)
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return (int(found["epoch"] or 0), tuple(numbers), found["leads_up"] is None)


def series(text: str) -> tuple[int, ...]:
    """The epoch and what semantic versioning lets nothing be broken within: `1` of 1.4.7, `0.24` of 0.24.0."""
    found = _VERSION.match(text)
    if found is None:
        return ()
    numbers = _numbers(found)
    return (
        int(found["epoch"] or 0),
        *numbers[: 1 + next((at for at, each in enumerate(numbers) if each), 0)],
    )


def next_series(text: str) -> str:
    """The first release after the series of a version: `2` after 1.4.7, `0.25` after 0.24.0."""
    epoch, *numbers = series(text)
    numbers[-1] += 1
    return f"{f'{epoch}!' if epoch else ''}{'.'.join(map(str, numbers))}"


def _numbers(found: re.Match[str]) -> list[int]:
    return [int(each) for each in found["release"].split(".")]


_VERSION: Final = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)[._-]?(?P<leads_up>a|b|c|rc|pre|dev)?",
    re.IGNORECASE | re.ASCII,
)
