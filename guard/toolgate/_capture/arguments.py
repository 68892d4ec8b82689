"""The arguments of one call: converted to a context, compared before the tool runs, and edited by an approver."""

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
    """Frozen copy of one call's arguments; the arguments are compared with it before the tool runs.

    Args:
        rules: Rules by which the arguments are shown, hidden or omitted.
        fingerprinter: Computes the digests of hidden values.
    """

    def __init__(self, rules: Rules, fingerprinter: Fingerprinter) -> None:
        self._rules = rules
        self._fingerprinter = fingerprinter
        # JSON texts are stored and not the values: strings are immutable, but other code in the process could get a
        # reference to a stored list and change it.
        self._taken: dict[tuple[str, str], str] = {}
        self._derived: dict[str, Any] = {}

    @property
    def derived(self) -> frozenset[str]:
        """Names of the values in the context that were computed from the arguments."""
        return frozenset(self._derived)

    def take(self, arguments: Mapping[str, Any]) -> Captured:
        """Freeze the arguments and return their context.

        Raises:
            ConfigurationError: An argument cannot be written as JSON, or a value cannot be computed from the arguments.
        """
        self._derived = self._rules.derive(arguments)
        frozen = freeze_call(arguments, self._rules, self._derived)
        self._taken = _texts(frozen) if self._rules.changeable(arguments) else {}
        return show(frozen, self._rules, self._fingerprinter)

    def difference(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the name of an argument or computed value that has changed since `take`, or None.

        Raises:
            ConfigurationError: A value cannot be computed from the arguments.
        """
        changeable = self._rules.changeable(arguments)
        # Values that were computed from immutable arguments only are not computed again. A function that reads the
        # clock, for example, would return another value, and the call would be denied although no argument changed.
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
    """Arguments of one call; an approver's edit replaces arguments, and never changes the caller's objects.

    Args:
        binder: Binds arguments to the parameters of the function.
        args: Positional arguments; with `drop_first`, without the instance or class.
        kwargs: Keyword arguments.
        bound: All arguments by name, as `binder.bind` returned them.
        drop_first: Whether the method was called on an instance or class, which `args` does not contain.
        rules: Rules by which the arguments are shown, hidden or omitted.
        fingerprinter: Computes the digests of hidden values.
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
        """Whether other code could change an argument during the check."""
        return bool(self._rules.changeable(self._bound))

    def capture(self) -> Captured:
        """Freeze the arguments, including those that an approver edited, and return their context.

        Raises:
            ConfigurationError: An argument cannot be written as JSON, or a value cannot be computed from the arguments.
        """
        return self._snapshot.take({**self._bound, **self._edits})

    def difference(self) -> str | None:
        """Return the name of an argument or computed value that has changed since `capture`, or None.

        Raises:
            ConfigurationError: A value cannot be computed from the arguments.
        """
        return self._snapshot.difference({**self._bound, **self._edits})

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Apply an approver's edit, by which the call's context changed from `asked` to `approved`.

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
        """Discard an applied edit, so that the call has the caller's arguments again."""
        self._edits = {}

    def passed(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments to call with: the caller's own objects, except those that an approver edited."""
        if not self._edits:
            return self._args, self._kwargs
        return self._binder.rebind(
            self._args,
            self._kwargs,
            self._edits,
            drop_first=self._drop_first,
            reserved=self._rules.reserved,
        )
