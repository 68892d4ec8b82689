"""Functions that read and write JSON text without losing digits of `Decimal` numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Final, NoReturn, TypeAlias

__all__ = ["Json", "dumps", "exact", "first_difference", "loads", "read_decimal", "size"]

Json: TypeAlias = "bool | int | float | Decimal | str | list[Json] | dict[str, Json] | None"

_SEPARATORS: Final = (",", ":")
# The encoders are created once, since `json.dumps` would create one for each call with these options.
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=_SEPARATORS)
_CANONICAL: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=_SEPARATORS, sort_keys=True
)
# Maximum number of digits, and maximum exponent, of a number; the gateway has the same limits. Without the limit of the
# exponent, a short number such as 1e999999999 would be written out as a gigabyte of digits.
_LONGEST_NUMBER: Final = 400


def dumps(value: Json, *, canonical: bool = False) -> str:
    """Return `value` as JSON text without white space.

    Args:
        value: JSON value. NaN is not allowed, and all names must be strings.
        canonical: Sort members by name, so that equal values have equal texts.
    """
    try:
        # The C encoder is much faster than `_pieces`, but raises TypeError for a Decimal.
        return (_CANONICAL if canonical else _PLAIN).encode(value)
    except TypeError:
        return "".join(_pieces(value, canonical=canonical))


def size(value: Json) -> int:
    """Return the length of the JSON text of `value` in bytes of UTF-8."""
    return len(dumps(value).encode("utf-8", "surrogatepass"))


def exact(value: Json) -> str:
    """Return the canonical JSON text that the gateway uses to compare arguments; 1, 1.0 and 1e0 have the same text."""
    return "".join(_pieces(value, canonical=True, exactly=True))


def first_difference(ours: Mapping[str, Json], theirs: Mapping[str, Json]) -> str | None:
    """Return the first name whose value differs between two JSON objects, or None; values are compared by `exact`."""
    for name in sorted({*ours, *theirs}):
        if name not in ours or name not in theirs or exact(ours[name]) != exact(theirs[name]):
            return name
    return None


def loads(text: bytes | str, *, exactly: bool = False) -> Any:
    """Read JSON strictly: duplicate members, NaN and Infinity are errors.

    Args:
        text: JSON; bytes may be in UTF-8, UTF-16 or UTF-32.
        exactly: Return numbers with a fraction or exponent as `Decimal`.

    Raises:
        ValueError: The text is not JSON, or contains something that other parsers may read differently.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    return (_exact_reader() if exactly else _reader()).decode(text)


@cache
def _reader() -> json.JSONDecoder:
    # The decoder is created once, since `json.loads` would create one for each call with these options.
    return json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


@cache
def _exact_reader() -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=read_decimal)


def read_decimal(text: str) -> Decimal:
    """Convert the text of a JSON number with a fraction or exponent; used as `parse_float` of the `json` module.

    Raises:
        ValueError: The number has an exponent beyond ±400, or more than 400 digits.
    """
    digits, _, exponent = text.lower().partition("e")
    if (
        len(digits) > _LONGEST_NUMBER
        or len(exponent) > _LONGEST_NUMBER
        or abs(int(exponent or 0)) > _LONGEST_NUMBER
    ):
        raise ValueError("a number has too many digits")
    return Decimal(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a JSON object contains the same key twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _pieces(value: Json, *, canonical: bool, exactly: bool = False) -> Iterator[str]:
    if isinstance(value, Decimal):
        yield _decimal(value) if exactly else str(value)
    elif exactly and isinstance(value, float):
        yield _decimal(Decimal(repr(value)))
    elif isinstance(value, dict):
        names = sorted(value) if canonical else list(value)
        for index, name in enumerate(names):
            yield ("," if index else "{") + json.dumps(name, ensure_ascii=False) + ":"
            yield from _pieces(value[name], canonical=canonical, exactly=exactly)
        yield "}" if names else "{}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield "," if index else "["
            yield from _pieces(item, canonical=canonical, exactly=exactly)
        yield "]" if value else "[]"
    else:
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)


def _decimal(number: Decimal) -> str:
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text
