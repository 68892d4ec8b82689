"""Comparison of a call's arguments before and after the gateway was asked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from toolgate.capture.context import Captured, Rules, capture
from toolgate.capture.hiding import Hider
from toolgate.capture.jsontext import Json, dumps

__all__ = ["Snapshot", "is_immutable"]

_IMMUTABLE: Final = frozenset(
    (
        str,
        int,
        float,
        bool,
        type(None),
        bytes,
        complex,
        Decimal,
        UUID,
        dt.datetime,
        dt.date,
        dt.time,
        dt.timedelta,
    )
)


class Snapshot:
    """Captures one call's arguments, and later finds out which of them changed.

    Args:
        rules: Rules for what the context shows.
        hider: Digester for what it does not show.
    """

    def __init__(self, rules: Rules, hider: Hider) -> None:
        self._rules = rules
        self._hider = hider
        self._once: list[bytes] = []
        self._derived: dict[str, Any] = {}

    @property
    def derived(self) -> frozenset[str]:
        """Names in the context that were computed from the arguments."""
        return frozenset(self._derived)

    def take(self, arguments: Mapping[str, Any]) -> Captured:
        """Capture the arguments.

        Raises:
            ConfigurationError: A value cannot be computed from the arguments.
        """
        self._derived = self._rules.derive(arguments)
        if not self._rules.changeable(arguments):
            return capture(arguments, self._rules, self._hider, self._derived)
        hider = self._hider.recording(None)
        captured = capture(arguments, self._rules, hider, self._derived)
        self._once = hider.issued
        return captured

    def difference(self, arguments: Mapping[str, Any], before: Mapping[str, Json]) -> str | None:
        """Return the first name whose value is not what `take` captured, or None.

        Values that cannot be read get the digests that `take` gave them, so that they compare equal.

        Raises:
            ConfigurationError: A value cannot be computed from the arguments.
        """
        changeable = self._rules.changeable(arguments)
        # A function of immutable arguments alone is not called again: it may return the time of day.
        derived = self._rules.derive(arguments) if self._rules.derives_from(changeable) else self._derived
        after = capture(arguments, self._rules, self._hider.recording(self._once), derived).context
        for name in sorted({*before, *after}):
            if name not in before or name not in after:
                return name
            if dumps(before[name], canonical=True) != dumps(after[name], canonical=True):
                return name
        return None


def is_immutable(value: object) -> bool:
    """Return whether no other code can change `value`."""
    kind = type(value)
    if kind in _IMMUTABLE or issubclass(kind, Enum):
        return True
    if kind is tuple or kind is frozenset:
        return all(map(is_immutable, value))  # type: ignore[call-overload]  # its exact class is iterable
    return False
