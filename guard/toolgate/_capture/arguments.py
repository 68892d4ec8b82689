"""The arguments of one call, and what a person's edit makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolgate._capture.binding import Binder
from toolgate._capture.context import Captured, Rules
from toolgate._capture.converting import UneditableError, converted
from toolgate._capture.hiding import Hider
from toolgate._capture.jsontext import Json, exact
from toolgate._capture.snapshot import Snapshot
from toolgate.errors import ConfigurationError

__all__ = ["CallArguments", "edits_of"]


class CallArguments:
    """What one call passes; an edit replaces values and changes none.

    Args:
        binder: Binds to the function's signature.
        args: Positional arguments, without the instance or class that holds the first parameter.
        kwargs: Keyword arguments.
        bound: All of them by name, as `binder` binds them.
        drop_first: The call came through an instance or class, which holds the first parameter.
        rules: What of them is shown.
        hider: Makes the digests of what is not.
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
        hider: Hider,
    ) -> None:
        self._binder = binder
        self._args = args
        self._kwargs = kwargs
        self._drop_first = drop_first
        self._rules = rules
        self._snapshot = Snapshot(rules, hider)
        self._bound = bound
        self._edits: dict[str, Any] = {}

    @property
    def is_changeable(self) -> bool:
        """Whether other code could change an argument while the gateway is asked."""
        return bool(self._rules.changeable(self._bound))

    def capture(self) -> Captured:
        """The context of the call as it would run now.

        Raises:
            ConfigurationError: If what is computed of the arguments cannot be.
        """
        return self._snapshot.take({**self._bound, **self._edits})

    def difference(self) -> str | None:
        """Return the first argument that is not what `capture` last found, or None.

        Raises:
            ConfigurationError: If what is computed of the arguments cannot be.
        """
        return self._snapshot.difference({**self._bound, **self._edits})

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Put the edit that made `approved` of `asked` into the arguments; returns what stands against it."""
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

    def as_given(self) -> None:
        """Forget the edit."""
        self._edits = {}

    def passed(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments to call with: the caller's very own, unless a person edited them."""
        if not self._edits:
            return self._args, self._kwargs
        return self._binder.rebind(
            self._args,
            self._kwargs,
            self._edits,
            drop_first=self._drop_first,
            reserved=self._rules.reserved,
        )


def edits_of(
    values: Mapping[Any, Any],
    asked: Mapping[str, Json],
    approved: Mapping[str, Json],
    hint: Callable[[str], object],
    *,
    derived: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The values that an edit changes, by name.

    Args:
        values: The values as they are, by the names of the context.
        asked: Their context.
        approved: The context a person approved.
        hint: The annotation of a value.
        derived: Names in the context that stand for another value too.

    Raises:
        UneditableError: Naming the field, and never its value.
    """
    edits: dict[str, Any] = {}
    for name in sorted({*asked, *approved} - derived):
        if name not in asked:
            raise UneditableError(f"{name!r} was added")
        if name not in approved:
            raise UneditableError(f"{name!r} was left out")
        if exact(asked[name]) == exact(approved[name]):
            continue
        if name.startswith("$") or name not in values:
            raise UneditableError(f"{name!r} is hidden, or no argument of its own: it cannot be edited")
        try:
            edits[name] = converted(values[name], asked[name], approved[name], hint(name))
        except UneditableError as error:
            raise UneditableError(f"{name!r} {error}") from None
    return edits
