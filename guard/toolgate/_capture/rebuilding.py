"""A person's edit of a set, a dataclass or a model: a new one of the very class, by the class's own rules."""

from __future__ import annotations

import dataclasses
import typing
from collections import abc
from typing import Any, Final, Protocol, TypeAlias

from toolgate._capture.binding import UNKNOWN
from toolgate._capture.jsontext import Json, dumps, exact
from toolgate._capture.plain import is_model
from toolgate._capture.state import state

__all__ = ["SETS", "BadEditError", "members_of_set", "rebuilds", "rebuilt"]

SETS: Final[tuple[type, ...]] = (set, frozenset)
_Made: TypeAlias = abc.Callable[[Json], Any]


class BadEditError(Exception):
    """The edit cannot be carried out; the message says why, without any value."""


class _Convert(Protocol):
    def __call__(self, old: object, asked: Json, approved: Json, hint: object = ...) -> Any: ...


def rebuilds(old: object) -> bool:
    """Whether `old` is a dataclass or model that is shown field by field."""
    kind = type(old)
    return dataclasses.is_dataclass(kind) or is_model(kind)


def rebuilt(old: Any, asked: Json, approved: Json, convert: _Convert) -> Any:
    """What `old` is with the fields an edit changes; validated by its class as if it were made so.

    Raises:
        BadEditError: If the class refuses it, or something else than a field is changed.
    """
    kind = type(old)
    hints = _hints(kind)
    if getattr(kind, "__pydantic_root_model__", False):
        return _validated(old, convert(old.root, asked, approved, hints.get("root", UNKNOWN)))
    if not isinstance(asked, dict) or not isinstance(approved, dict):
        raise BadEditError(f"is of type {kind.__name__!r}, which cannot take the approver's value")
    if asked.keys() != approved.keys():
        raise BadEditError("has a fixed set of fields: none can be added or left out")
    fields = _fields(old)
    changes: dict[str, Any] = {}
    for name in asked:
        if exact(asked[name]) == exact(approved[name]):
            continue
        if name not in fields:
            raise BadEditError(f"holds {name!r}, which is no field: it cannot be edited")
        changes[name] = convert(fields[name], asked[name], approved[name], hints.get(name, UNKNOWN))
    if is_model(kind):
        return _model(old, fields, changes)
    try:
        return dataclasses.replace(old, **changes)
    except Exception:  # noqa: BLE001 - the class's own rules, whose message may tell the value
        raise BadEditError(f"is of type {kind.__name__!r}, which refuses the approver's value") from None


def members_of_set(
    old: abc.Set[Any],
    asked: abc.Sequence[Json],
    approved: abc.Sequence[Json],
    made_like: abc.Callable[[type, Json], Any],
    made: _Made,
) -> Any:
    """The set an edit makes: what stays are the very objects, the others are new ones.

    Args:
        old: The set.
        asked: Its form in the context.
        approved: The form a person approved.
        made_like: Makes a value of the class of a member, or raises what the caller catches.
        made: Makes a new member.

    Raises:
        BadEditError: If two members have one form, or the edit's are not in a set's order.
    """
    if [dumps(item, canonical=True) for item in approved] != sorted(
        {dumps(item, canonical=True) for item in approved}
    ):
        raise BadEditError("is a set, written in order and each member once")
    kept: dict[str, Any] = {}
    for member in old:
        for item in asked:
            if _is(member, item, made_like):
                if exact(item) in kept:
                    raise BadEditError("has two members that look the same: it cannot be edited")
                kept[exact(item)] = member
    if len(kept) != len(old):
        raise BadEditError("has members that are no plain data: it cannot be edited")
    found = [kept[exact(item)] if exact(item) in kept else made(item) for item in approved]
    kind: Any = type(old)
    try:
        whole = kind(found)
    except TypeError:
        raise BadEditError("would hold a member that no set can hold") from None
    if len(whole) != len(found):
        raise BadEditError("would hold a member twice")
    return whole


def _is(member: Any, item: Json, made_like: abc.Callable[[type, Json], Any]) -> bool:
    try:
        made = made_like(type(member), item)
    except Exception:  # noqa: BLE001 - it is another member's form
        return False
    return type(made) is type(member) and bool(made == member)


def _fields(old: Any) -> dict[str, Any]:
    kind: Any = type(old)
    names = set(kind.model_fields) if is_model(kind) else {each.name for each in dataclasses.fields(kind)}
    extra = getattr(old, "__pydantic_extra__", None) or {}
    found = state(old) or {}
    return {name: found[name] for name in found if name in names or name in extra}


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation may be any expression, of names that are long gone
        return {}


def _model(old: Any, fields: dict[str, Any], changes: dict[str, Any]) -> Any:
    # What was never set stays unset: exclude_unset tells it apart.
    was_set = {name: fields[name] for name in fields if name in old.model_fields_set}
    made = _validated(old, {**was_set, **changes})
    private = getattr(old, "__pydantic_private__", None)
    if private is not None:
        object.__setattr__(made, "__pydantic_private__", dict(private))
    return made


def _validated(old: Any, value: Any) -> Any:
    validator: Any = type(old).__pydantic_validator__
    try:
        by_name = {} if not isinstance(value, dict) else {"by_alias": False, "by_name": True}
        return validator.validate_python(value, **by_name)
    except Exception:  # noqa: BLE001 - the class's own rules, whose message may tell the value
        raise BadEditError(f"is of type {type(old).__name__!r}, which refuses the approver's value") from None
