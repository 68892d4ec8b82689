"""Keeps a context within what the gateway accepts (decisions §2: 64 KiB)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from toolgate.capture.hiding import Hider
from toolgate.capture.jsontext import Json, size

__all__ = ["fit"]

_LIMIT: Final = 60 * 1024
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
    kept = {name: value for name, value in fitted.items() if _is_amount(name, value)}
    return {**kept, "$cut": hider.json({name: fitted[name] for name in fitted if name not in kept})}


def _is_amount(name: str, value: Json) -> bool:
    return name == "amount" and isinstance(value, (int, float, Decimal))
