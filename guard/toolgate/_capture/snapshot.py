"""Comparison of a call's arguments before and after the gateway was asked."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from toolgate._capture.context import Captured, Rules, capture
from toolgate._capture.hiding import Hider
from toolgate._capture.jsontext import dumps
from toolgate._capture.state import enum_attributes, has_fixed_zone
from toolgate._capture.tree import MOST_OBJECTS
from toolgate.errors import ConfigurationError

__all__ = ["Snapshot", "is_immutable", "same_arguments"]

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
        dt.date,
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
        # As text, which nothing can change.
        self._taken: dict[str, str] = {}
        self._derived: dict[str, Any] = {}

    @property
    def derived(self) -> frozenset[str]:
        """Names in the context that were computed from the arguments."""
        return frozenset(self._derived)

    def take(self, arguments: Mapping[str, Any]) -> Captured:
        """Capture the arguments.

        Raises:
            ConfigurationError: A value cannot be computed from the arguments, or a container is too large to be
                compared later.
        """
        self._derived = self._rules.derive(arguments)
        if not self._rules.changeable(arguments):
            return capture(arguments, self._rules, self._hider, self._derived)
        hider = self._hider.recording(None)
        captured = capture(arguments, self._rules, hider, self._derived)
        if captured.too_large is not None:
            raise ConfigurationError(
                f"argument {captured.too_large!r} contains more than {MOST_OBJECTS:,} objects, so that it cannot be "
                "compared after the gateway was asked; pass fewer, or name it in unbound="
            )
        self._once = hider.issued
        self._taken = _texts(captured)
        return captured

    def difference(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the first name whose value is not what `take` captured, or None.

        Values that cannot be read get the digests that `take` gave them, so that they compare equal.

        Raises:
            ConfigurationError: A value cannot be computed from the arguments.
        """
        changeable = self._rules.changeable(arguments)
        # A function of immutable arguments alone is not called again: it may return the time of day.
        derived = self._rules.derive(arguments) if self._rules.derives_from(changeable) else self._derived
        now = _texts(capture(arguments, self._rules, self._hider.recording(self._once), derived))
        return next(
            (name for name in sorted({*self._taken, *now}) if self._taken.get(name) != now.get(name)), None
        )


def _texts(captured: Captured) -> dict[str, str]:
    return {name: dumps(value, canonical=True) for name, value in captured.context.items()}


def is_immutable(value: object) -> bool:
    """Return whether no other code can change `value`."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return True
    if issubclass(kind, Enum):
        # A member is shared by the whole process: its attributes can be set, and its value may be a list.
        return is_immutable(value._value_) and not enum_attributes(value)  # type: ignore[attr-defined]  # of every member
    if kind is dt.datetime or kind is dt.time:
        return has_fixed_zone(value)
    if kind is tuple or kind is frozenset:
        return all(map(is_immutable, value))  # type: ignore[call-overload]  # its exact class is iterable
    return False


def same_arguments(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two calls' arguments are captured alike.

    Values that cannot be read count as equal where both have one.
    """
    hider = _PLAIN.recording(None)
    first = capture(one, _EVERYTHING, hider).context
    again = capture(other, _EVERYTHING, _PLAIN.recording(hider.issued)).context
    return dumps(first, canonical=True) == dumps(again, canonical=True)


_EVERYTHING: Final = Rules()
# Digests are compared within this process only, and by this key.
_PLAIN: Final = Hider(secrets.token_hex(32))
