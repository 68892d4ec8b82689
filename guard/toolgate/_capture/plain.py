"""Built-in values as they are, whatever a subclass says about itself."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any
from uuid import UUID

__all__ = ["binary", "is_model", "is_number", "measure", "moment", "names_of", "number"]


def number(value: Any) -> int | float | Decimal | Fraction:
    """A number as one of Python's own classes, past whatever its subclass overrides."""
    kind = type(value)
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, Decimal):
        return value if kind is Decimal else Decimal(tuple(Decimal.as_tuple(value)))  # type: ignore[arg-type]  # its own form
    if issubclass(kind, Fraction):
        # Its slots: the properties above them can be overridden.
        return Fraction(value._numerator, value._denominator)  # noqa: SLF001 - a subclass may lie in its properties
    return int(value) if issubclass(kind, Integral) else float(value)


def is_number(kind: type) -> bool:
    """Whether instances of `kind` are numbers."""
    return issubclass(kind, (int, float, Decimal)) or issubclass(kind, (Integral, Real))


def is_model(kind: type) -> bool:
    """Whether `kind` is a pydantic model; only someone who loaded pydantic can have made one."""
    model = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return model is not None and issubclass(kind, model)


def measure(value: float) -> float | str:
    """A float, or the name of one that JSON has no number for."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def binary(value: Any) -> bytes:
    """The bytes of a binary value."""
    kind = type(value)
    if issubclass(kind, bytes):
        return bytes.__getitem__(value, slice(None))
    if issubclass(kind, bytearray):
        return bytes(bytearray.__getitem__(value, slice(None)))
    data: bytes = value.tobytes()
    return data


def moment(value: Any) -> str:
    """A date, time, duration, identifier or path as text."""
    for kind in (dt.datetime, dt.date, dt.time):
        if issubclass(type(value), kind):
            plain: str = kind.isoformat(value)
            return plain if type(value) is kind else _told(plain, value.isoformat())
    for other in (UUID, PurePath, dt.timedelta):
        if issubclass(type(value), other):
            return _told(other.__str__(value), str(value))
    return str(value)


def _told(plain: str, own: object) -> str:
    # Subclasses may hold more, like nanoseconds, and say so only in their own text.
    return plain if str(own) in {plain, ""} else f"{own} ({plain})"


def names_of(members: Mapping[Any, Any]) -> list[Any]:
    """The keys, sorted where they can be, so that equal mappings are walked alike."""
    names = list(members)
    return sorted(names) if all(type(name) is str for name in names) else names
