"""Arguments of one call: conversion to JSON, comparison before the tool runs, and application of an approver's edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolgate._capture.binding import Binder
from toolgate._capture.context import Captured, FrozenCall, Rules, freeze_call, show
from toolgate._capture.edits import UneditableError, edits_of
from toolgate._capture.fingerprint import Fingerprinter
from toolgate._capture.jsontext import Json, exact
from toolgate._capture.serializer import UnsupportedArgumentError, canonical_text
from toolgate.errors import ConfigurationError

__all__ = ["CallArguments", "Snapshot"]


class Snapshot:
    """Immutable copy of one call's arguments, to find out before the tool runs whether they changed since the check.

    Args:
        rules: Options that decide which arguments are shown, hidden or omitted.
        fingerprinter: Computes the digests that replace hidden values.
    """

    def __init__(self, rules: Rules, fingerprinter: Fingerprinter) -> None:
        self._rules = rules
        self._fingerprinter = fingerprinter
        # JSON texts are stored instead of the values, because strings are immutable. A stored list could be changed by
        # other code in the process.
        self._taken: dict[tuple[str, str], str] = {}
        self._derived: dict[str, Any] = {}

    @property
    def derived(self) -> frozenset[str]:
        """Names of the values that the options `amount` and `context` add to the arguments."""
        return frozenset(self._derived)

    def take(self, arguments: Mapping[str, Any]) -> Captured:
        """Copy the arguments, and return the JSON object that the gateway checks (the context).

        Raises:
            ConfigurationError: An argument cannot be written as JSON, or the `amount` or `context` function failed.
        """
        self._derived = self._rules.derive(arguments)
        frozen = freeze_call(arguments, self._rules, self._derived)
        self._taken = _texts(frozen) if self._rules.changeable(arguments) else {}
        return show(frozen, self._rules, self._fingerprinter)

    def difference(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the name of an argument or computed value that has changed since `take`, or None.

        Raises:
            ConfigurationError: The `amount` or `context` function failed.
        """
        changeable = self._rules.changeable(arguments)
        # The `amount` and `context` functions are not called again if they use only immutable arguments. Otherwise a
        # function that reads the clock, for example, would return another value, and the call would be denied although
        # no argument has changed.
        derived = self._rules.derive(arguments) if self._rules.derives_from(changeable) else self._derived
        try:
            now = _texts(freeze_call(arguments, self._rules, derived))
        except UnsupportedArgumentError as error:
            return error.name
        for name in sorted({*self._taken, *now}):
            if self._taken.get(name) != now.get(name):
                return name[1]
        return None


def _texts(call: FrozenCall) -> dict[tuple[str, str], str]:
    return {
        (kind, name): canonical_text(value)
        for kind, values in (("argument", call.arguments), ("derived", call.derived))
        for name, value in values.items()
    }


class CallArguments:
    """Arguments of one call, to which an approver's edit can be applied without changing the caller's objects.

    Args:
        binder: Binds arguments to the parameters of the function.
        args: Positional arguments. With `drop_first`, they do not contain the instance or class.
        kwargs: Keyword arguments.
        bound: All arguments by name, as `binder.bind` returned them.
        drop_first: True if the function's first parameter is the instance or class (`self` or `cls`).
        rules: Options that decide which arguments are shown, hidden or omitted.
        fingerprinter: Computes the digests that replace hidden values.
    """

    def __init__(
        self,
        binder: Binder,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        bound: Mapping[str, Any],
        *,
        drop_first: bool,
        rules: Rules,
        fingerprinter: Fingerprinter,
    ) -> None:
        self._binder = binder
        self._args = args
        self._kwargs = kwargs
        self._drop_first = drop_first
        self._rules = rules
        self._snapshot = Snapshot(rules, fingerprinter)
        self._bound = bound
        self._edits: dict[str, Any] = {}

    @property
    def is_changeable(self) -> bool:
        """True if other code could change an argument during the check."""
        return bool(self._rules.changeable(self._bound))

    def capture(self) -> Captured:
        """Copy the arguments, including an approver's edit, and return the JSON object that the gateway checks.

        Raises:
            ConfigurationError: An argument cannot be written as JSON, or the `amount` or `context` function failed.
        """
        return self._snapshot.take({**self._bound, **self._edits})

    def difference(self) -> str | None:
        """Return the name of an argument or computed value that has changed since `capture`, or None.

        Raises:
            ConfigurationError: The `amount` or `context` function failed.
        """
        return self._snapshot.difference({**self._bound, **self._edits})

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Apply an approver's edit: the difference between the requested arguments `asked` and the `approved` ones.

        Return None, or the reason why the edit cannot be applied.
        """
        mapped = self._rules.amount
        if mapped is not None and exact(approved.get(mapped)) != exact(approved.get("amount")):
            return f"'amount' is the argument {mapped!r}, and the edit makes them differ"
        known = self._snapshot.derived
        derived = known if mapped is None else known | {"amount"}
        try:
            self._edits = edits_of(self._bound, asked, approved, self._binder.hint, derived=derived)
            self.capture()
        except (UneditableError, ConfigurationError) as error:
            self._edits = {}
            return str(error)
        return None

    def discard_edit(self) -> None:
        """Discard an applied edit, so that the tool gets the caller's arguments."""
        self._edits = {}

    def passed(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments for the tool: the caller's own objects, except those that an approver edited."""
        if not self._edits:
            return self._args, self._kwargs
        return self._binder.rebind(
            self._args,
            self._kwargs,
            self._edits,
            drop_first=self._drop_first,
            reserved=self._rules.reserved,
        )
