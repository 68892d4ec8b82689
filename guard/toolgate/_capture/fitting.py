"""Keeps a context within what the gateway accepts (decisions §2: 64 KiB, and a number of JSON values)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from toolgate._capture.hiding import Hider
from toolgate._capture.jsontext import Json, size

__all__ = ["fit"]

_LIMIT: Final = 60 * 1024
# The gateway reads 5,000 values in a whole request; an entry has some beside its context.
_VALUES: Final = 4_500
# A digest object has itself and two members.
_DIGEST_VALUES: Final = 3
# A digest object is about this long; replacing something shorter by one gains nothing.
_DIGEST_BYTES: Final = 112


def fit(
    context: Mapping[str, Json], hider: Hider, *, beside: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Replace the largest values by digests until the context fits; a numeric `amount` always stays.

    A context of very many small values ends as its amount and one digest of all the rest.

    Args:
        context: JSON-safe values by name.
        hider: Makes the digests.
        beside: What else has to find room.
    """
    limit = _LIMIT - (size(dict(beside)) if beside else 0)
    fitted = dict(context)
    if _count(fitted) > _VALUES:
        fitted = _with_few_values(fitted, hider)
    total = size(fitted)
    if total <= limit:
        return fitted
    sizes = {name: size(value) for name, value in fitted.items() if not _is_amount(name, value)}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if total <= limit or sizes[name] <= _DIGEST_BYTES:
            break
        fitted[name] = hider.json(fitted[name])
        total += size(fitted[name]) - sizes[name]
    if total <= limit:
        return fitted
    return _cut(fitted, hider)


def _with_few_values(context: Mapping[str, Json], hider: Hider) -> dict[str, Json]:
    """Replace the members of most values by digests until there are few enough."""
    fitted, counts = dict(context), {name: _count(value) for name, value in context.items()}
    total = 1 + sum(counts.values())
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        if total <= _VALUES:
            return fitted
        if counts[name] <= _DIGEST_VALUES:
            break
        fitted[name] = hider.json(fitted[name])
        total += _DIGEST_VALUES - counts[name]
    return fitted if total <= _VALUES else _cut(fitted, hider)


def _cut(context: Mapping[str, Json], hider: Hider) -> dict[str, Json]:
    kept = {name: value for name, value in context.items() if _is_amount(name, value)}
    return {**kept, "$cut": hider.json({name: context[name] for name in context if name not in kept})}


def _count(value: Json) -> int:
    """Return how many JSON values a value is, with those inside it."""
    count, left = 1, [value]
    while left:
        inside = left.pop()
        if isinstance(inside, Mapping):
            count += len(inside)
            left += inside.values()
        elif isinstance(inside, (list, tuple)):
            count += len(inside)
            left += inside
    return count


def _is_amount(name: str, value: Json) -> bool:
    return name == "amount" and isinstance(value, (int, float, Decimal))
