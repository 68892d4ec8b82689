"""Arguments of one call: conversion to JSON, comparison before the tool runs, and an approver's edit.

An approver may change arguments of a call and approve the changed call. Each new value, which is JSON, gets the type of
the value that it replaces, or the annotated type. Its JSON form must be equal to the JSON that the approver approved.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from toolgate._capture.binding import UNKNOWN, Binder
from toolgate._capture.context import Captured, FrozenCall, Rules, freeze_call, show
from toolgate._capture.jsontext import Json, dumps, exact
from toolgate._capture.serializer import (
    Fingerprinter,
    Freezer,
    UnsupportedArgumentError,
    canonical_text,
    fields_of,
    plain,
)
from toolgate.errors import ConfigurationError

__all__ = ["UNKNOWN", "CallArguments", "Snapshot", "UneditableError", "edited", "edits_of"]


@dataclass(slots=True, eq=False)
class Snapshot:
    """Immutable copy of one call's arguments, to find out before the tool runs whether they changed since the check.

    Attributes:
        rules: Options that decide which arguments are shown, hidden or omitted.
        fingerprinter: Computes the digests that replace hidden values.
        changeable: Names of the arguments that other code could have changed since the last `take`.
    """

    rules: Rules
    fingerprinter: Fingerprinter
    changeable: frozenset[str] = frozenset()
    # JSON texts are stored instead of the values, because strings are immutable. A stored list could be changed by
    # other code in the process.
    _taken: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str], init=False)
    _derived: dict[str, Any] = field(default_factory=dict[str, Any], init=False)

    @property
    def derived(self) -> frozenset[str]:
        """Names of the values that the options `amount` and `context` add to the arguments."""
        return frozenset(self._derived)

    def take(self, arguments: Mapping[str, Any]) -> Captured:
        """Copy the arguments, and return the JSON object that the gateway checks (the context).

        Raises:
            ConfigurationError: An argument cannot be written as JSON, or the `amount` or `context` function failed.
        """
        self._derived = self.rules.derive(arguments)
        frozen = freeze_call(arguments, self.rules, self._derived)
        self.changeable = self.rules.changeable(arguments)
        self._taken = _texts(frozen) if self.changeable else {}
        return show(frozen, self.rules, self.fingerprinter)

    def difference(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the name of an argument or computed value that has changed since `take`, or None.

        Raises:
            ConfigurationError: The `amount` or `context` function failed.
        """
        changeable = self.rules.changeable(arguments)
        # The `amount` and `context` functions are not called again if they use only immutable arguments. Otherwise a
        # function that reads the clock, for example, would return another value, and the call would be denied although
        # no argument has changed.
        derived = self.rules.derive(arguments) if self.rules.derives_from(changeable) else self._derived
        try:
            now = _texts(freeze_call(arguments, self.rules, derived))
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


@dataclass(slots=True, eq=False)
class CallArguments:
    """Arguments of one call, to which an approver's edit can be applied without changing the caller's objects.

    Attributes:
        binder: Binds arguments to the parameters of the function.
        args: Positional arguments. With `drop_first`, they do not contain the instance or class.
        kwargs: Keyword arguments.
        bound: All arguments by name, as `binder.bind` returned them.
        drop_first: True if the function's first parameter is the instance or class (`self` or `cls`).
        rules: Options that decide which arguments are shown, hidden or omitted.
        snapshot: The copy of the arguments that the last `capture` made.
    """

    binder: Binder
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    bound: Mapping[str, Any]
    drop_first: bool
    rules: Rules
    snapshot: Snapshot
    _edits: dict[str, Any] = field(default_factory=dict[str, Any], init=False)

    def capture(self) -> Captured:
        """Copy the arguments, including an approver's edit, and return the JSON object that the gateway checks.

        Raises:
            ConfigurationError: An argument cannot be written as JSON, or the `amount` or `context` function failed.
        """
        return self.snapshot.take({**self.bound, **self._edits})

    def difference(self) -> str | None:
        """Return the name of an argument or computed value that has changed since `capture`, or None.

        Raises:
            ConfigurationError: The `amount` or `context` function failed.
        """
        return self.snapshot.difference({**self.bound, **self._edits})

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Apply an approver's edit: the difference between the requested arguments `asked` and the `approved` ones.

        Return None, or the reason why the edit cannot be applied.
        """
        mapped = self.rules.amount
        if mapped is not None and exact(approved.get(mapped)) != exact(approved.get("amount")):
            return (
                f"the edit gives 'amount' and {mapped!r} different values, but the tool reads the amount from "
                f"{mapped!r}; give both fields the same value"
            )
        known = self.snapshot.derived
        derived = known if mapped is None else known | {"amount"}
        try:
            self._edits = edits_of(self.bound, asked, approved, self.binder.hint, derived=derived)
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
            return self.args, self.kwargs
        return self.binder.rebind(
            self.args,
            self.kwargs,
            self._edits,
            drop_first=self.drop_first,
            reserved=self.rules.reserved,
        )


_NATIVE: Final = frozenset((str, bool, int, float, list, dict, type(None)))
_ANYTHING: Final[tuple[object, ...]] = (Any, object)
_FIXED_ZONES: Final = frozenset(("datetime", "pydantic_core._pydantic_core"))


class UneditableError(Exception):
    """An approver's edit cannot be applied; the message contains the reason, but no value of an argument."""


class _OtherTypeError(Exception):
    """A value cannot be converted to the expected type, or the conversion would change its JSON form."""


def edits_of(
    values: Mapping[Any, Any],
    asked: Mapping[str, Json],
    approved: Mapping[str, Json],
    hint: Callable[[str], object],
    *,
    derived: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the new values of the arguments that an approver changed, by name.

    Args:
        values: Current values of the arguments, by name.
        asked: JSON of the arguments as the check contained it, before the edit.
        approved: JSON of the arguments as the approver edited and approved it.
        hint: Returns the annotation of the argument with the given name.
        derived: Names to skip, because their values are computed from arguments and are not arguments themselves.

    Raises:
        UneditableError: A change cannot be applied; the message contains the argument's name, but not its value.
    """
    edits: dict[str, Any] = {}
    for name in sorted({*asked, *approved} - derived):
        if name not in asked:
            raise UneditableError(f"{name!r} was added")
        if name not in approved:
            raise UneditableError(f"{name!r} was removed")
        if exact(asked[name]) == exact(approved[name]):
            continue
        if name.startswith("$") or name not in values:
            raise UneditableError(
                f"{name!r} cannot be edited, because it is redacted or computed from other arguments"
            )
        try:
            edits[name] = edited(values[name], asked[name], approved[name], hint(name))
        except UneditableError as error:
            raise UneditableError(f"{name!r}: {error}") from None
    return edits


def edited(old: object, asked: Json, approved: Json, hint: object = UNKNOWN) -> Any:
    """Return the value `old` with an approver's changes.

    `asked` is the JSON form of `old`, and `approved` is the JSON form that the result must have. Values inside `old`
    that the approver did not change, including hidden values, stay the same objects. Changed values keep their type. If
    that is impossible, or if there was no value before, the annotation `hint` determines the type.

    Raises:
        UneditableError: No value of these types has the approved JSON form.
    """
    edit = _Edit()
    takes_anything = hint in _ANYTHING
    made = edit.value(old, asked, approved, nested=takes_anything)
    if hint is not UNKNOWN and not takes_anything and (edit.is_open or edit.problem):
        try:
            return _validated(hint, made)
        except _OtherTypeError:
            raise UneditableError(
                edit.problem or "the edited value does not match the type annotation of the parameter"
            ) from None
    if edit.problem:
        raise UneditableError(edit.problem)
    return made


class _Edit:
    """Applies an approver's edit to one argument and, recursively, to the items, members and fields inside it.

    Attributes:
        is_open: True if the type of a new value is not known, because there is no old value to compare it with, such as
            for an item that the approver added to an empty list.
        problem: Reason why a new value does not have the type of the old value, or None.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.problem: str | None = None

    def value(self, old: Any, asked: Json, approved: Json, *, nested: bool = True) -> Any:
        if exact(asked) == exact(approved):
            return old
        kind = type(old)
        if (fields := fields_of(old)) is not None:
            return self._rebuilt(old, fields, asked, approved)
        if isinstance(asked, list) and isinstance(approved, list):
            if kind in {list, tuple}:
                return self._items(old, asked, approved)
            if kind in {set, frozenset}:
                return self._set(old, asked, approved)
        if kind is dict and _is_mapping(asked) and _is_mapping(approved):
            return self._members(old, asked, approved)
        if _is_marked(asked) or _is_marked(approved) or isinstance(old, (bytes, bytearray)):
            raise UneditableError(
                "the value cannot be edited, because it is redacted or is not plain data (text, numbers, lists, "
                "dictionaries)"
            )
        return self._single(old, _native(approved), nested=nested)

    def _single(self, old: Any, made: Any, *, nested: bool) -> Any:
        """Convert the approver's value `made`, which replaces `old`, to the type of `old` if possible."""
        kind = type(old)
        if old is None:
            self.is_open = True
        else:
            try:
                same_type = _validated(kind, made)
            except _OtherTypeError:
                pass
            else:
                return _moment(old, same_type) if isinstance(old, (dt.datetime, dt.time)) else same_type
        if not nested or kind not in _NATIVE:
            self.problem = f"the approver's value cannot be converted to the type {kind.__name__!r}"
        return made

    def _items(self, old: Any, asked: list[Json], approved: list[Json]) -> Any:
        if any(map(_is_marked, asked[len(approved) :])):
            raise UneditableError("the list contains redacted items, which an edit cannot remove")
        kept = len(old)
        found = [self.value(old[at], asked[at], item) for at, item in enumerate(approved[:kept])]
        found += [self._new(item, old) for item in approved[kept:]]
        if type(old) is tuple:
            self.is_open = self.is_open or len(found) != kept
            return tuple(found)
        return found

    def _members(
        self, old: dict[str, Any], asked: dict[str, Json], approved: dict[str, Json]
    ) -> dict[str, Any]:
        if not all(type(name) is str for name in old) or old.keys() != asked.keys():
            raise UneditableError("the dictionary cannot be edited, because some of its keys are not strings")
        if any(_is_marked(item) for name, item in asked.items() if name not in approved):
            raise UneditableError("the dictionary contains redacted members, which an edit cannot remove")
        kept = {
            name: self.value(item, asked[name], approved[name])
            for name, item in old.items()
            if name in approved
        }
        added = {name: self._new(item, old.values()) for name, item in approved.items() if name not in old}
        return kept | added

    def _set(self, old: Any, asked: list[Json], approved: list[Json]) -> Any:
        if any(map(_is_marked, asked)):
            raise UneditableError("the set cannot be edited, because some of its members are redacted")
        texts = [dumps(item, canonical=True) for item in approved]
        if texts != sorted(set(texts)):
            raise UneditableError(
                "the value is a set; write the members of the set in sorted order, each member once"
            )
        members = {_written(member): member for member in old}
        if len(members) != len(old):
            raise UneditableError("the set cannot be edited, because two of its members are equal in JSON")
        found = [
            members[exact(item)] if exact(item) in members else self._new(item, old) for item in approved
        ]
        try:
            made = type(old)(found)
        except TypeError:
            raise UneditableError(
                "the edited set would contain a list or an object, which a set cannot contain"
            ) from None
        if len(made) != len(found):
            raise UneditableError("the edited set would contain the same member twice")
        return made

    def _new(self, value: Json, others: Iterable[object]) -> Any:
        """Convert a value that the approver added to a container to the type of `others`, if they have one type."""
        if _is_marked(value):
            raise UneditableError("the edit adds a redacted value that the request did not contain")
        made = _native(value)
        kinds = set(map(type, others))
        kind = kinds.pop() if len(kinds) == 1 else None
        # The other items do not determine the type of the new value if they are None or containers, because the types
        # of the items in a container are not known.
        if kind is None or kind in {list, tuple, dict, type(None)}:
            self.is_open = True
            return made
        try:
            return _validated(kind, made)
        except _OtherTypeError:
            self.problem = "the edit adds a value of another type than the existing values"
            return made

    def _rebuilt(self, old: Any, fields: dict[str, Any], asked: Json, approved: Json) -> Any:
        """Return a new object of the dataclass or pydantic model of `old`, with the approved fields, validated."""
        kind: Any = type(old)
        is_data = dataclasses.is_dataclass(kind)
        if getattr(kind, "__pydantic_root_model__", False):
            return _by_class(kind, lambda: _validate_model(old, self.value(old.root, asked, approved)))
        if not isinstance(asked, dict) or not isinstance(approved, dict):
            raise UneditableError(f"the approver's value cannot be converted to the type {kind.__name__!r}")
        if asked.keys() != approved.keys():
            raise UneditableError("the object has a fixed set of fields; an edit cannot add or remove fields")
        known = {*getattr(kind, "model_fields", ()), *(getattr(old, "__pydantic_extra__", None) or ())}
        if is_data:
            known.update(each.name for each in dataclasses.fields(kind))
        hints = _hints(kind)
        changes: dict[str, Any] = {}
        for name in asked:
            if exact(asked[name]) == exact(approved[name]):
                continue
            if name not in known or name not in fields:
                raise UneditableError(
                    f"the object cannot be edited, because it contains {name!r}, which is not a declared field"
                )
            changes[name] = edited(fields[name], asked[name], approved[name], hints.get(name, UNKNOWN))
        if is_data:
            return _by_class(kind, lambda: dataclasses.replace(old, **changes))
        # Only fields that were set in `old` are passed. A field that was not set must stay unset, because a tool may
        # omit unset fields with pydantic's `exclude_unset`.
        was_set = {name: fields[name] for name in fields if name in old.model_fields_set}
        return _by_class(kind, lambda: _validate_model(old, {**was_set, **changes}))


def _by_class(kind: Any, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except UneditableError:
        raise
    except Exception:  # noqa: BLE001 - the class may raise anything; the message may contain the value and is not repeated
        raise UneditableError(f"the class {kind.__name__!r} does not accept the approver's value") from None


def _validate_model(old: Any, value: Any) -> Any:
    validator: Any = type(old).__pydantic_validator__
    by_name = {"by_alias": False, "by_name": True} if isinstance(value, dict) else {}
    made = validator.validate_python(value, **by_name)
    private = getattr(old, "__pydantic_private__", None)
    if private is not None:
        object.__setattr__(made, "__pydantic_private__", dict(private))
    return made


def _validated(hint: Any, value: Any) -> Any:
    """Convert `value` with pydantic to the type `hint`; raise `_OtherTypeError` if its JSON form would change."""
    from pydantic import TypeAdapter

    try:
        made: Any = TypeAdapter(hint).validate_python(value)
        if _written(made) == _written(value):
            return made
    except Exception:  # noqa: BLE001 - an annotation may be any class, whose validation may raise anything
        raise _OtherTypeError from None
    raise _OtherTypeError


def _written(value: object) -> str:
    return exact(plain(Freezer().arguments({"": value})[""]))


def _moment(old: Any, made: Any) -> Any:
    """Return the edited date-time or time `made`, with the time zone of `old` if its ISO 8601 text stays the same.

    If `old` has a fixed UTC offset, the edit may change the offset. Any other change of the time zone is an error.
    """
    zone = old.tzinfo
    if (zone is None) != (made.tzinfo is None):
        raise UneditableError("the edit would add or remove the time zone")
    if zone is None:
        return made
    for fold in (0, 1):
        there = made.replace(tzinfo=zone, fold=fold)
        if there.isoformat() == made.isoformat():
            return there
    if type(zone).__module__ in _FIXED_ZONES:
        return made.replace(tzinfo=dt.timezone(made.utcoffset()))
    raise UneditableError("the edit would change the time zone")


def _native(value: Json) -> Any:
    """Return the JSON with each `Decimal` and `float` converted to `int` if that is exact, or else to `float`.

    A `Decimal` that neither type represents exactly stays unchanged.
    """
    if isinstance(value, list):
        return [_native(item) for item in value]
    if isinstance(value, dict):
        return {name: _native(item) for name, item in value.items()}
    if isinstance(value, (float, Decimal)):
        for kind in (int, float):
            try:
                made = kind(value)
                if exact(made) == exact(value):
                    return made
            except (ValueError, ArithmeticError):
                continue
    return value


def _is_marked(value: Json) -> bool:
    """Return True if the JSON contains a name that begins with `$`: such objects replace hidden values."""
    if isinstance(value, dict):
        return any(name.startswith("$") or _is_marked(item) for name, item in value.items())
    return isinstance(value, list) and any(map(_is_marked, value))


def _is_mapping(value: Json) -> typing.TypeGuard[dict[str, Json]]:
    return isinstance(value, dict) and not any(name.startswith("$") for name in value)


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating an annotation may raise anything, such as NameError
        return {}
