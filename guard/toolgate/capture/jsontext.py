"""JSON text of captured values, with decimals as numbers that keep their digits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeAlias

__all__ = ["Json", "dumps", "loads", "size"]

Json: TypeAlias = "bool | int | float | Decimal | str | list[Json] | dict[str, Json] | None"

_SEPARATORS: Final = (",", ":")


def dumps(value: Json, *, canonical: bool = False) -> str:
    """Write `value` as JSON text without white space.

    Args:
        value: What `jsonsafe` made: no NaN, no cycles, string keys only.
        canonical: Sort the members, so that equal values give equal text.
    """
    try:
        # The C encoder knows no Decimal and says so; everything else it writes much faster.
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=_SEPARATORS, sort_keys=canonical
        )
    except TypeError:
        return "".join(_pieces(value, canonical=canonical))


def size(value: Json) -> int:
    """Length of the JSON text of `value` in bytes of UTF-8."""
    return len(dumps(value).encode("utf-8", "surrogatepass"))


def loads(text: bytes | str) -> Any:
    """Read JSON strictly: duplicate members, NaN and Infinity are errors.

    Raises:
        ValueError: If the text is no JSON, or JSON that two readers may read differently.
    """
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object names a member twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _pieces(value: Json, *, canonical: bool) -> Iterator[str]:
    if isinstance(value, Decimal):
        yield str(value)
    elif isinstance(value, dict):
        names = sorted(value) if canonical else list(value)
        for index, name in enumerate(names):
            yield ("," if index else "{") + json.dumps(name, ensure_ascii=False) + ":"
            yield from _pieces(value[name], canonical=canonical)
        yield "}" if names else "{}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield "," if index else "["
            yield from _pieces(item, canonical=canonical)
        yield "]" if value else "[]"
    else:
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)
