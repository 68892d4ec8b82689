"""Any Python value as JSON the gateway accepts: never raises, equal for equal values."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import ModuleType
from typing import Any, Final
from uuid import UUID

from toolgate._capture.forms import ANYTHING, forms, forms_of_bytes, forms_within, told
from toolgate._capture.hiding import Hider
from toolgate._capture.jsontext import Json, dumps
from toolgate._capture.plain import binary, is_model, is_number, measure, moment, number
from toolgate._capture.redaction import Masked, SecretRule
from toolgate._capture.state import added, enum_attributes, extra, qualified, state
from toolgate._capture.tree import TreeDigest

__all__ = ["JsonSafe"]

# The gateway allows 32 levels (decisions §2); a log entry adds some around the arguments.
_MAX_DEPTH: Final = 28
# Each takes two bytes or more: a context with more of them would not fit anyway.
_MOST_MEMBERS: Final = 30_720
_BYTES_OF_A_MEMBER: Final = 8
_MAX_TEXT: Final = 8 * 1024
_MAX_NAME: Final = 255
_MAX_DIGITS: Final = 400
_TOO_LONG: Final = 10**_MAX_DIGITS
_PAIR: Final = 2
_OF_A_PAIR: Final = frozenset(("name", "key", "header", "value"))
_UNSENDABLE: Final = re.compile("[\x00\ud800-\udfff]")


class _TooMuchError(Exception):
    """The argument is too large to be shown."""


class JsonSafe:
    """Converts the values of one context; made anew for each.

    Args:
        hider: Makes the digests of what is not shown.
        names: Says what is hidden; None shows everything (to digest a hidden value whole).

    Attributes:
        hidden: The forms of what was hidden, to keep them out of error messages.
        is_cut: Whether a value had more objects than are digested.
    """

    def __init__(self, hider: Hider, names: SecretRule | None) -> None:
        self._hider = hider
        self._names = names
        self._open: list[int] = []
        self._left = _MOST_MEMBERS
        self._tree: TreeDigest | None = None
        self.hidden: list[str] = []
        self.is_cut = False

    def convert(self, value: object) -> Json:
        """One argument as JSON; what cannot be shown becomes a digest."""
        self._left = _MOST_MEMBERS
        try:
            return self._convert(value)
        except _TooMuchError:
            return self.digest(value)

    def member(self, name: str, value: object) -> Json:
        """One value under a name that says whether it is a secret."""
        return self.hide(value) if self._hides(name, value) else self.convert(value)

    def show(self, value: object) -> Json:
        """`value` as JSON without looking for secrets in its form: an amount is never taken for a card."""
        kind = type(value)
        if issubclass(kind, str):
            return self._sendable(str.__str__(value))
        if is_number(kind) and kind is not bool:
            return JsonSafe(self._hider, None).amount(value)
        return self.convert(value)

    def amount(self, value: object) -> Json:
        """A number as JSON, whatever else its class says about it."""
        try:
            return self._number(value)
        except Exception:  # noqa: BLE001 - other people's numbers may do anything
            return self._once(value)

    def hide(self, value: object) -> dict[str, Json]:
        """The digest of `value`, whose forms are remembered in `hidden`."""
        return self._hidden(value)[0]

    def _hidden(self, value: object) -> tuple[dict[str, Json], int]:
        """As `hide`, and how many members were looked at."""
        kind = type(value)
        if kind is str:
            self.hidden.extend(forms(value))  # type: ignore[arg-type]  # the very class is str
            return self._hider.json(value), 0  # type: ignore[arg-type]  # likewise
        if kind in {bytes, bytearray}:
            data = binary(value)
            self.hidden.extend(forms_of_bytes(data))
            return self._hider.binary(data), 0
        whole = JsonSafe(self._hider, None)
        safe = whole.convert(value)
        self.is_cut = self.is_cut or whole.is_cut
        self.hidden.extend(whole.hidden)
        self.hidden.extend(forms_within(safe))
        return self._hider.json(safe), _MOST_MEMBERS - whole._left

    def name(self, name: str) -> str:
        """A name that can be sent and is not mistaken for one of the digests' own."""
        name = str.__str__(name)
        if len(name) > _MAX_NAME or _UNSENDABLE.search(name):
            return self._hider.label(name)
        if self._names is not None and self._names.found_in_name(name):
            masked = self._names.mask(name) or Masked(None, (name,))
            self._remember(masked.secrets)
            label = self._hider.label(name)
            return label if masked.visible is None else f"$redacted:{masked.visible} {label[1:]}"
        # A mapping that looks like a digest must not pass for one.
        return f"${name}" if name.startswith("$") else name

    def digest(self, value: object) -> dict[str, Json]:
        """The digest of a value that is too large, too deep or too odd to be shown."""
        try:
            if self._tree is None:
                hides = None if self._names is None else self._names.hides
                self._tree = TreeDigest(hides, self._hider.unrepeatable)
            digest, size = self._tree.of(value)
            node = self._hider.node(digest, size)
            self.is_cut = self.is_cut or self._tree.is_cut
        except Exception:  # noqa: BLE001 - too little stack or memory is left
            return self._once(value)
        if self._names is None:
            self._left -= size // _BYTES_OF_A_MEMBER
        if self._names is None or self._tree.secret:
            # What is hidden in there has not been looked at.
            self.hidden.append(ANYTHING)
        return {"$object": _label(value), **node}

    def unreadable(self, value: object) -> dict[str, Json]:
        """A digest that never comes again, for what cannot be read."""
        return self._once(value)

    def _convert(self, value: object) -> Json:
        kind = type(value)
        if kind is str:
            return self._text(value)  # type: ignore[arg-type]  # the very class is str
        if value is None or value is True or value is False:
            return value
        try:
            if kind is int or kind is float:
                return self._number(value)
            return self._other(value, kind)
        except _TooMuchError:
            raise
        except Exception:  # noqa: BLE001 - properties and methods of other people's classes may do anything
            return self._once(value)

    def _other(self, value: Any, kind: type) -> Json:
        # By type(), never isinstance: an object may lie about its class.
        if kind in {dict, list, tuple, set, frozenset}:
            return self._container(value, kind)
        if self._names is None and kind.__module__ != "builtins":
            self.hidden.extend(told(value))
        if issubclass(kind, Enum):
            return self._enum_member(value)
        if issubclass(kind, str):
            return self._with_extra(value, self._text(str.__str__(value)))
        if is_number(kind):
            return self._with_extra(value, self._number(value))
        if issubclass(kind, (bytes, bytearray, memoryview)):
            data = binary(value)
            self.hidden.extend(forms_of_bytes(data) if self._names is None else ())
            return self._with_extra(value, self._hider.binary(data))
        if issubclass(kind, (dt.datetime, dt.date, dt.time)):
            return self._with_extra(value, self._text(moment(value)))
        if issubclass(kind, (UUID, PurePath, dt.timedelta)):
            shown, more = self._text(moment(value)), added(value)
            return {**self.digest(more), "$object": _label(value), "$value": shown} if more else shown
        if issubclass(kind, (type, ModuleType)):
            return {"$object": qualified(value) if issubclass(kind, type) else value.__name__}
        return self._container(value, kind)

    def _enum_member(self, value: Any) -> Json:
        shown, attributes = self._convert(value._value_), enum_attributes(value)
        return {**self.digest(attributes), "$object": _label(value), "$value": shown} if attributes else shown

    def _text(self, value: str) -> Json:
        if self._names is None:
            return value
        masked = self._names.mask(value)
        if masked is None:
            return self._sendable(value)
        self._remember(masked.secrets)
        if masked.visible is None or not isinstance(visible := self._sendable(masked.visible), str):
            self.hidden.extend(forms(value))
            return self._hider.text(value)
        return {"$redacted": visible, **self._hider.text(value)}

    def _remember(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            self.hidden.extend(forms(secret))

    def _sendable(self, value: str) -> Json:
        # Characters first: the encoded length is needed for the few long ones only.
        if len(value) * 4 > _MAX_TEXT and len(value.encode("utf-8", "surrogatepass")) > _MAX_TEXT:
            return self._hider.text(value)
        return self._hider.text(value) if _UNSENDABLE.search(value) else value

    def _number(self, given: Any) -> Json:
        value = number(given)
        if isinstance(value, Fraction):
            return self._text(str(value))
        if isinstance(value, Decimal):
            shown = self._decimal(value)
        elif isinstance(value, float):
            shown = measure(value)
        else:
            shown = self._hider.text(hex(value)) if abs(value) >= _TOO_LONG else value
        if self._names is not None and isinstance(shown, (int, float, Decimal)):
            return self.hide(shown) if self._names.found_in_number(shown) else shown
        return shown

    def _decimal(self, value: Decimal) -> Json:
        if not value.is_finite():
            return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
        exponent = int(value.as_tuple().exponent)
        if len(value.as_tuple().digits) > _MAX_DIGITS or not -_MAX_DIGITS <= exponent <= _MAX_DIGITS:
            return self._hider.text(str(value))
        if abs(value.adjusted()) > _MAX_DIGITS:
            return self._hider.text(str(value))
        return value

    def _container(self, value: Any, kind: type) -> Json:
        if id(value) in self._open:
            return {"$cycle": len(self._open) - self._open.index(id(value))}
        if len(self._open) >= _MAX_DEPTH:
            return self.digest(value)
        self._open.append(id(value))
        try:
            if issubclass(kind, dict):
                return self._with_extra(value, self._mapping(dict.items(value), dict.__len__(value)))
            for built_in in (list, tuple, set, frozenset):
                if issubclass(kind, built_in):
                    return self._with_extra(value, self._items(value, built_in))
            return self._object(value, kind)
        finally:
            self._open.pop()

    def _items(self, value: Any, built_in: Any) -> list[Json]:
        self._spend(built_in.__len__(value))
        items = list(built_in.__iter__(value))
        if built_in in {list, tuple} and len(items) == _PAIR and type(items[0]) is str:
            # A header is often a pair: ("Authorization", "…").
            return [self._convert(items[0]), self._member(items[0], items[1])]
        found = [self._convert(item) for item in items]
        return found if built_in in {list, tuple} else sorted(found, key=_order)

    def _spend(self, members: int) -> None:
        self._left -= members
        if self._left < 0:
            raise _TooMuchError

    def _mapping(self, items: Iterable[tuple[Any, Any]], length: int) -> dict[str, Json]:
        self._spend(length)
        members: dict[str, Json] = {}
        others: list[tuple[str, str, object]] = []
        pair: dict[str, object] = {}
        for key, item in items:
            if type(key) is str:
                if key in _OF_A_PAIR:
                    pair[key] = item
                members[self.name(key)] = self._member(key, item)
            else:
                text = str.__str__(key) if issubclass(type(key), str) else self._convert(key)
                plain = text if isinstance(text, str) else dumps(text, canonical=True)
                others.append((plain, type(key).__qualname__, item))
        # 1 and "1" are two keys in Python: neither may replace the other, in whatever order they came.
        for name, _, item in sorted(others, key=lambda other: other[:2]):
            free = self.name(name)
            while free in members:
                # Keys that are all written alike would otherwise be tried against each other.
                self._spend(1)
                free += "_"
            members[free] = self._member(name, item)
        if "value" in pair:
            # A header is as often written {"name": "Authorization", "value": "…"}.
            for told in (item for key, item in pair.items() if key != "value" and type(item) is str):
                if self._hides(told, pair["value"]):
                    members["value"] = self._member(told, pair["value"])
        return members

    def _member(self, name: str, value: object) -> Json:
        if not self._hides(name, value):
            return self._convert(value)
        shown, members = self._hidden(value)
        # One large value may stand in many places.
        self._spend(members)
        return shown

    def _hides(self, name: str, value: object) -> bool:
        return value is not None and self._names is not None and self._names.hides(name)

    def _object(self, value: Any, kind: type) -> Json:
        if issubclass(kind, Mapping):
            items = list(value.items())
            return self._with_extra(value, self._mapping(items, len(items)))
        if kind.__module__.startswith("pydantic") and hasattr(kind, "get_secret_value"):
            return self.hide(value.get_secret_value())
        # Fields are read as they are: model_dump runs the model's own serializers and leaves out excluded
        # fields, which would then bind nothing.
        if dataclasses.is_dataclass(kind) or is_model(kind):
            parts = state(value)
            if (
                parts is not None
                and set(parts) == {"root"}
                and getattr(kind, "__pydantic_root_model__", False)
            ):
                return self._convert(parts["root"])
            return self._once(value) if parts is None else self._mapping(parts.items(), len(parts))
        if kind.__repr__ is not object.__repr__:
            return self.digest(value)
        parts = state(value)
        if parts is None:
            return self._once(value)
        return {"$object": qualified(kind), **self._mapping(sorted(parts.items()), len(parts))}

    def _with_extra(self, value: object, shown: Json) -> Json:
        if type(value).__module__ == "builtins":
            return shown
        more = extra(value)
        return {**self.digest(more), "$object": _label(value), "$value": shown} if more else shown

    def _once(self, value: object) -> dict[str, Json]:
        self.hidden.extend([ANYTHING] if self._names is None else ())
        return {"$object": _label(value), "$digest": self._hider.once()}


def _label(value: Any) -> str:
    try:
        named = getattr(type(value), "__name__", "") in {"function", "builtin_function_or_method"}
        label = qualified(value if named else type(value))
    except Exception:  # noqa: BLE001 - a class may refuse to tell its name
        return "?"
    return label if not _UNSENDABLE.search(label) else "?"


def _order(value: Json) -> str:
    return dumps(value, canonical=True)
