"""Durations such as ``30m`` and ``2 h 5 min``: parsed from options, and formatted for people."""

import re
from datetime import UTC, datetime

_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"([0-9]{1,8})(s|min|m|h|d)")


def span_text(seconds: float) -> str:
    """Return a span in its two largest units: ``12 s``, ``5 min``, ``3 h 12 min``, ``2 d 4 h``."""
    whole = max(0, int(seconds))
    if whole < _UNITS["min"]:
        return f"{whole} s"
    if whole < _UNITS["h"]:
        return f"{whole // 60} min"
    large, small, rest = ("h", "min", whole) if whole < _UNITS["d"] else ("d", "h", whole)
    over = rest % _UNITS[large] // _UNITS[small]
    return f"{rest // _UNITS[large]} {large}" + (f" {over} {small}" if over else "")


def read_span(text: str) -> int:
    """Return a span in seconds, as written: ``90s``, ``30m``, ``1h``, ``2d``.

    Raises:
        ValueError: it is none.
    """
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no span of time; write it as 30m, 1h or 2d")
    return int(found.group(1)) * _UNITS[found.group(2)]


def since(moment: datetime) -> str:
    """Return how long ago a moment was."""
    return span_text((datetime.now(UTC) - moment).total_seconds())


def until(moment: datetime) -> str:
    """Return how far ahead a moment is."""
    return span_text((moment - datetime.now(UTC)).total_seconds())
