"""JSON back into Python: a person's edit as a value of the argument's own type, exactly or not at all."""

from __future__ import annotations

import datetime as dt
import types
import typing
from collections import abc
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from toolgate._capture.binding import UNKNOWN
from toolgate._capture.jsontext import Json, exact
from toolgate._capture.plain import moment
from toolgate._capture.rebuilding import SETS, BadEditError, members_of_set, rebuilds, rebuilt

__all__ = ["UNKNOWN", "UneditableError", "converted", "is_marked"]


class UneditableError(Exception):
    """The edit cannot be carried out; the message says why, without any value."""


_LISTS: Final = frozenset((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable))
_DICTS: Final = frozenset((dict, abc.Mapping, abc.MutableMapping))
_SET_HINTS: Final = frozenset((set, frozenset, abc.Set, abc.MutableSet))
_MOMENTS: Final = (dt.datetime, dt.date, dt.time)
_NONE: Final = type(None)
_ANYTHING: Final[tuple[object, ...]] = (Any, object)
_NATIVE: Final = frozenset((str, bool, int, float, list, dict, _NONE))


def converted(old: object, asked: Json, approved: Json, hint: object = UNKNOWN) -> Any:
    """What stands for `approved` where `old` stood for `asked`; nothing of `old` is changed.

    Args:
        old: The value as it is.
        asked: Its form in the context.
        approved: The form a person approved.
        hint: The value's annotation; `UNKNOWN` without one.

    Raises:
        UneditableError: If there is no value of the right type that has exactly this form.
    """
    if exact(asked) == exact(approved):
        return old
    build = _builder(old, asked, approved)
    if build is not None:
        return build(old, asked, approved, hint)
    if is_marked(asked) or is_marked(approved):
        raise UneditableError("is hidden, or no plain data: it cannot be edited")
    if isinstance(old, _MOMENTS) and type(old) in _MOMENTS and isinstance(approved, str):
        return _moment(old, approved)
    if hint in _ANYTHING and type(old) not in _NATIVE:
        # A Decimal that may be anything still is no text.
        hint = UNKNOWN
    for kind in (UNKNOWN if old is None else type(old), hint):
        if kind is UNKNOWN:
            continue
        try:
            return _made(kind, approved)
        except _NotThisError:
            continue
    raise UneditableError(f"is of type {type(old).__name__!r}, which cannot take the approver's value")


def _builder(old: object, asked: Json, approved: Json) -> abc.Callable[[Any, Any, Any, object], Any] | None:
    """What makes a whole of parts, for a value that has any."""
    lists = isinstance(asked, list) and isinstance(approved, list)
    if type(old) in {list, tuple} and lists:
        return _items
    if type(old) is dict and _is_mapping(asked) and _is_mapping(approved):
        return _members
    if rebuilds(old):
        return _fields
    if type(old) in SETS and lists and not is_marked(asked) and not is_marked(approved):
        return _set
    return None


def is_marked(value: Json) -> bool:
    """Whether something in it stands for what is not shown: names that begin with a dollar are the capture's own."""
    if isinstance(value, dict):
        return any(name.startswith("$") or is_marked(item) for name, item in value.items())
    return isinstance(value, list) and any(map(is_marked, value))


class _NotThisError(Exception):
    """The value is none of this type."""


def _is_mapping(value: Json) -> typing.TypeGuard[dict[str, Json]]:
    return isinstance(value, dict) and not any(name.startswith("$") for name in value)


def _items(old: Any, asked: list[Json], approved: list[Json], hint: object) -> Any:
    if len(old) != len(asked) or any(map(is_marked, asked[len(approved) :])):
        raise UneditableError("hides some of its items: they cannot be edited")
    hints = _hints_of_items(hint, len(approved))
    like = _common(old)
    found = [
        converted(old[index], asked[index], item, hints[index])
        if index < len(old)
        else _new(item, hints[index], like)
        for index, item in enumerate(approved)
    ]
    return tuple(found) if type(old) is tuple else found


def _fields(old: Any, asked: Json, approved: Json, _: object) -> Any:
    try:
        return rebuilt(old, asked, approved, converted)
    except BadEditError as error:
        raise UneditableError(str(error)) from None


def _set(old: Any, asked: list[Json], approved: list[Json], hint: object) -> Any:
    of_items, like = _hint_of_members(hint), _common(old)
    try:
        return members_of_set(old, asked, approved, _made, lambda item: _new(item, of_items, like))
    except BadEditError as error:
        raise UneditableError(str(error)) from None


def _members(
    old: dict[Any, Any], asked: dict[str, Json], approved: dict[str, Json], hint: object
) -> dict[str, Any]:
    if not all(type(name) is str for name in old) or old.keys() != asked.keys():
        raise UneditableError("has names that are no plain text: it cannot be edited")
    if any(is_marked(item) for name, item in asked.items() if name not in approved):
        raise UneditableError("hides some of its members: they cannot be edited")
    of_values = _hint_of_values(hint)
    like = _common(old.values())
    found = {
        name: converted(item, asked[name], approved[name], of_values)
        for name, item in old.items()
        if name in approved
    }
    return found | {name: _new(item, of_values, like) for name, item in approved.items() if name not in found}


def _new(value: Json, hint: object, like: object) -> Any:
    """A value where there was none: as annotated, or as all its neighbours are, or as plain JSON."""
    if is_marked(value):
        raise UneditableError("would hide something that was not there")
    for kind in (hint, like):
        if kind is not UNKNOWN and kind not in _ANYTHING:
            try:
                return _made(kind, value)
            except _NotThisError:
                raise UneditableError("would hold something of another type") from None
    return _native(value)


def _common(values: abc.Iterable[object]) -> object:
    kinds = set(map(type, values))
    kind = kinds.pop() if len(kinds) == 1 else UNKNOWN
    # Of containers and None the type alone says too little.
    return UNKNOWN if kind in {list, tuple, dict, _NONE} else kind


def _hints_of_items(hint: object, count: int) -> list[object]:
    for kind in _choices(hint):
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin in _LISTS and len(inner) == 1:
            return [inner[0]] * count
        if origin is tuple and len(inner) == 2 and inner[1] is ...:  # noqa: PLR2004 - tuple[T, ...]
            return [inner[0]] * count
        if origin is tuple:
            if len(inner) != count:
                raise UneditableError("would have another length")
            return list(inner)
    return [Any] * count


def _hint_of_members(hint: object) -> object:
    for kind in _choices(hint):
        inner = typing.get_args(kind)
        if typing.get_origin(kind) in _SET_HINTS and len(inner) == 1:
            return inner[0]
    return Any


def _hint_of_values(hint: object) -> object:
    for kind in _choices(hint):
        inner = typing.get_args(kind)
        if typing.get_origin(kind) in _DICTS and len(inner) == 2 and inner[0] is str:  # noqa: PLR2004 - dict[str, V]
            return inner[1]
    return Any


def _choices(hint: object) -> abc.Iterator[Any]:
    origin = typing.get_origin(hint)
    if origin in {typing.Union, types.UnionType}:
        for kind in typing.get_args(hint):
            yield from _choices(kind)
    elif origin is typing.Annotated:
        yield from _choices(typing.get_args(hint)[0])
    elif isinstance(hint, typing.NewType):
        yield from _choices(hint.__supertype__)
    else:
        yield _NONE if hint is None else hint


def _made(hint: object, value: Json) -> Any:
    """A new value of an annotated type that has exactly the form `value`."""
    for kind in _choices(hint):
        try:
            return _made_as(kind, value)
        except _NotThisError:
            continue
    raise _NotThisError


def _made_as(kind: Any, value: Json) -> Any:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if kind in _ANYTHING:
        return _native(value)
    if origin is typing.Literal:
        return _one([each for each in inner if type(each) in {str, int, bool, _NONE}], value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        plain = {str, int, float, bool, Decimal, _NONE}
        return _one(list(kind), value, lambda member: member.value, plain)
    if origin in _LISTS and isinstance(value, list):
        return [_made(inner[0] if inner else Any, item) for item in value]
    if origin is tuple and isinstance(value, list):
        return tuple(map(_made, _hints_of_items(kind, len(value)), value))
    if origin in _DICTS and isinstance(value, dict) and (not inner or inner[0] is str):
        return {name: _made(inner[1] if inner else Any, item) for name, item in value.items()}
    if kind in _MOMENTS and isinstance(value, str):
        return _parsed(kind, value)
    if isinstance(kind, type) and issubclass(kind, (UUID, PurePath)) and isinstance(value, str):
        return _spelt(kind, value)
    return _scalar(kind, value)


def _spelt(kind: Any, text: str) -> Any:
    """An identifier or a path, if it is written just so."""
    try:
        made = kind(text)
    except Exception:  # noqa: BLE001 - a subclass may refuse as it likes
        raise _NotThisError from None
    if moment(made) != text:
        raise _NotThisError
    return made


def _scalar(kind: object, value: Json) -> Any:
    if kind is str or kind is bool or kind is _NONE:
        if type(value) is kind:
            return value
        raise _NotThisError
    makers: dict[object, Any] = {int: int, float: float, Decimal: Decimal}
    if kind not in makers or isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _NotThisError
    try:
        made = makers[kind](value)
        if exact(made) == exact(value):
            return made
    except (ValueError, ArithmeticError):
        pass
    raise _NotThisError


def _native(value: Json) -> Any:
    if isinstance(value, list):
        return [_native(item) for item in value]
    if isinstance(value, dict):
        return {name: _native(item) for name, item in value.items()}
    for kind in (str, bool, _NONE, int, float, Decimal):
        try:
            return _scalar(kind, value)
        except _NotThisError:
            continue
    raise _NotThisError


def _one(
    choices: list[Any],
    value: Json,
    read: abc.Callable[[Any], Any] = lambda each: each,
    plain: abc.Set[type] = frozenset((str, int, bool, _NONE)),
) -> Any:
    """The one choice that has this form."""
    found = [
        each for each in choices if type(read(each)) in plain and _exact_or_none(read(each)) == exact(value)
    ]
    if len(found) != 1:
        raise _NotThisError
    return found[0]


def _exact_or_none(value: Any) -> str | None:
    try:
        return exact(value)
    except (ValueError, ArithmeticError):
        return None


def _moment(old: Any, text: str) -> Any:
    """A moment in the very time zone of the old one, if the text can be one of it."""
    try:
        parsed: Any = _parsed(type(old), text)
    except _NotThisError:
        raise UneditableError("would not be written as a moment is") from None
    zone = getattr(old, "tzinfo", None)
    if zone is None and getattr(parsed, "tzinfo", None) is None:
        return parsed
    if zone is None or parsed.tzinfo is None:
        raise UneditableError("would gain or lose its time zone")
    for fold in (0, 1):
        made = parsed.replace(tzinfo=zone, fold=fold)
        if made.isoformat() == text:
            return made
    if type(zone) is dt.timezone:
        return parsed
    raise UneditableError("would be in another time zone")


def _parsed(kind: Any, text: str) -> Any:
    try:
        parsed = kind.fromisoformat(text)
    except ValueError:
        raise _NotThisError from None
    if parsed.isoformat() != text:
        raise _NotThisError
    return parsed
