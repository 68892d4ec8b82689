"""Any Python value as JSON the gateway accepts: never raises, equal for equal values."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import re
import sys
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from toolgate.capture.hiding import Hider
from toolgate.capture.jsontext import Json, dumps
from toolgate.capture.redaction import NameRule, looks_secret

__all__ = ["JsonSafe"]

# The gateway allows 32 levels (decisions §2); a log entry adds some around the arguments.
_MAX_DEPTH: Final = 28
# A list of lists of the same list … is small in memory and endless on paper.
_MAX_REPEATS: Final = 100_000
_MAX_TEXT: Final = 8 * 1024
_MAX_NAME: Final = 255
_MAX_DIGITS: Final = 400
_TOO_LONG: Final = 10**_MAX_DIGITS
_UNSENDABLE: Final = re.compile("[\x00\ud800-\udfff]")
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+")


class JsonSafe:
    """Converts the values of one context; made anew for each.

    Args:
        hider: Makes the digests of what is not shown.
        names: Says which names are hidden; None shows everything (to digest a hidden value whole).

    Attributes:
        hidden: Strings that were hidden, to keep them out of error messages.
    """

    def __init__(self, hider: Hider, names: NameRule | None) -> None:
        self._hider = hider
        self._names = names
        self._open: list[int] = []
        self._seen: set[int] = set()
        self._repeats = 0
        self.hidden: list[str] = []

    def convert(self, value: object) -> Json:
        """`value` as JSON; what cannot be shown becomes a digest or names its class."""
        try:
            return self._convert(value)
        except Exception:  # noqa: BLE001 - properties and methods of other people's classes may do anything
            return self._opaque(value)

    def hide(self, value: object) -> dict[str, Json]:
        """The digest of `value`, whose strings are remembered in `hidden`."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._hider.binary(bytes(value))
        whole = JsonSafe(self._hider, None)
        safe = value if isinstance(value, str) else whole.convert(value)
        self.hidden.extend(_strings(safe))
        return self._hider.json(safe)

    def name(self, name: str) -> str:
        """A name that can be sent and is not mistaken for one of the digests' own."""
        if len(name) > _MAX_NAME or _UNSENDABLE.search(name):
            return self._hider.label(name)
        if self._names is not None and looks_secret(name):
            self.hidden.append(name)
            return self._hider.label(name)
        # A mapping that looks like a digest must not pass for one.
        return f"${name}" if name.startswith("$") else name

    def _convert(self, value: object) -> Json:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, Enum):
            return self.convert(value.value)
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, (Integral, Decimal, Real)):
            return self._number(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._hider.binary(bytes(value))
        if isinstance(value, (dt.datetime, dt.date, dt.time)):
            return value.isoformat()
        if isinstance(value, (UUID, PurePath, dt.timedelta)):
            return self._text(str(value))
        if isinstance(value, type):
            return {"$object": _qualified(value)}
        return self._container(value)

    def show(self, value: object) -> Json:
        """`value` as JSON without looking for secrets in its form: an amount is never taken for a card."""
        if isinstance(value, str):
            return self._sendable(str.__str__(value))
        if isinstance(value, (Integral, Decimal, Real)):
            return JsonSafe(self._hider, None).convert(value)
        return self.convert(value)

    def _text(self, value: str) -> Json:
        if self._names is None:
            return value
        return self.hide(value) if looks_secret(value) else self._sendable(value)

    def _sendable(self, value: str) -> Json:
        # Characters first: the encoded length is needed for the few long ones only.
        if len(value) * 4 > _MAX_TEXT and len(value.encode("utf-8", "surrogatepass")) > _MAX_TEXT:
            return self._hider.text(value)
        return self._hider.text(value) if _UNSENDABLE.search(value) else value

    def _number(self, value: Any) -> Json:
        if isinstance(value, Decimal):
            return self._decimal(value)
        if isinstance(value, Fraction):
            return str(value)
        if isinstance(value, Integral):
            number = int(value)
            if abs(number) >= _TOO_LONG:
                return self._hider.text(hex(number))
            return self._secret_digits(number)
        measure = float.__float__(value) if isinstance(value, float) else float(value)
        if math.isfinite(measure):
            return measure
        return "NaN" if math.isnan(measure) else "Infinity" if measure > 0 else "-Infinity"

    def _secret_digits(self, number: int) -> Json:
        if self._names is not None and number > 10**12 and looks_secret(str(number)):
            return self.hide(number)
        return number

    def _decimal(self, value: Decimal) -> Json:
        if not value.is_finite():
            return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
        exponent = int(value.as_tuple().exponent)
        if len(value.as_tuple().digits) > _MAX_DIGITS or not -_MAX_DIGITS <= exponent <= _MAX_DIGITS:
            return self._hider.text(str(value))
        if abs(value.adjusted()) > _MAX_DIGITS:
            return self._hider.text(str(value))
        return Decimal(str(value))

    def _container(self, value: object) -> Json:
        if id(value) in self._open:
            return {"$cycle": len(self._open) - self._open.index(id(value))}
        self._repeats += id(value) in self._seen
        self._seen.add(id(value))
        if len(self._open) >= _MAX_DEPTH or self._repeats > _MAX_REPEATS:
            return self._opaque(value)
        self._open.append(id(value))
        try:
            if isinstance(value, Mapping):
                return self._mapping(value)
            if isinstance(value, (list, tuple)):
                return [self.convert(item) for item in value]
            if isinstance(value, (set, frozenset)):
                return sorted((self.convert(item) for item in value), key=_order)
            return self._object(value)
        finally:
            self._open.pop()

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Json]:
        members: dict[str, Json] = {}
        others: list[tuple[str, str, object]] = []
        for key, item in value.items():
            if isinstance(key, str):
                members[self.name(str.__str__(key))] = self._member(key, item)
            else:
                text = self.convert(key)
                plain = text if isinstance(text, str) else dumps(text, canonical=True)
                others.append((plain, type(key).__qualname__, item))
        # 1 and "1" are two keys in Python: neither may replace the other, in whatever order they came.
        for name, _, item in sorted(others, key=lambda other: other[:2]):
            free = self.name(name)
            while free in members:
                free += "_"
            members[free] = self._member(name, item)
        return members

    def _member(self, name: str, value: object) -> Json:
        if value is not None and self._names is not None and self._names.hides(name):
            return self.hide(value)
        return self.convert(value)

    def _object(self, value: object) -> Json:
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return self._mapping({name: getattr(value, name) for name in names if hasattr(value, name)})
        fields = _pydantic_fields(value)
        if fields is not None:
            return self._mapping(fields)
        if hasattr(type(value), "get_secret_value"):
            return self.hide(value.get_secret_value())  # type: ignore[attr-defined]  # pydantic's SecretStr
        return self._opaque(value)

    def _opaque(self, value: object) -> Json:
        shown: dict[str, Json] = {"$object": _qualified(type(value))}
        if type(value).__repr__ is object.__repr__ or self._repeats > _MAX_REPEATS:
            return shown
        try:
            text = repr(value)
        except Exception:  # noqa: BLE001 - other people's __repr__ may do anything
            return shown
        # An address differs in every process and would make equal calls unequal.
        return shown if _ADDRESS.search(text) else {**shown, **self._digest_of(text)}

    def _digest_of(self, text: str) -> dict[str, Json]:
        return {"$digest": self._hider.label(text)}


def _pydantic_fields(value: object) -> dict[str, Any] | None:
    # Only someone who loaded pydantic can have made a model. The fields are read as they are: model_dump
    # runs the model's own serializers and leaves out excluded fields, which would then bind nothing.
    pydantic = sys.modules.get("pydantic")
    model = getattr(pydantic, "BaseModel", None)
    if model is None or not isinstance(value, model):
        return None
    return {**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})}


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _order(value: Json) -> str:
    return dumps(value, canonical=True)


def _strings(value: Json) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _strings(item)]
