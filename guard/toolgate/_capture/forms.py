"""The ways a hidden value may be written into an error message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from toolgate._capture.jsontext import Json

__all__ = ["ANYTHING", "forms", "forms_of_bytes", "forms_within", "told"]

# Stands among the hidden texts for a value whose forms are not known: no message can be trusted then.
ANYTHING: Final = ""
# A message is cut before that.
_LONGEST: Final = 1000
_UNCHANGED: Final = re.compile(r"[ !#-&(-\[\]-~]*")


def forms(text: str) -> set[str]:
    """`text` and what `repr`, `ascii` and JSON make of it."""
    text = text[:_LONGEST]
    if not text or _UNCHANGED.fullmatch(text):
        return {text} - {""}
    # A quote is escaped or not, depending on which others there are.
    quoted = {repr(text)[1:-1], ascii(text)[1:-1], repr("'\"" + text)[4:-1], json.dumps(text)[1:-1]}
    found = {text, *quoted, json.dumps(text, ensure_ascii=False)[1:-1]}
    return {form[:_LONGEST] for form in found | {repr(form)[1:-1] for form in quoted}}


def forms_of_bytes(value: bytes) -> set[str]:
    """Bytes as text, as `repr` writes them and in hexadecimal digits."""
    value = value[:_LONGEST]
    found = forms(value.decode("utf-8", "replace")) | forms(value.decode("latin-1"))
    return {form[:_LONGEST] for form in found | {repr(value)[2:-1], value.hex()}} - {""}


def forms_within(value: Json) -> Iterable[str]:
    """The forms of every text and number in a JSON-safe value, keys included."""
    left: list[Json] = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left.extend(item.values())
            left.extend(name for name in item if not name.startswith("$"))
        elif isinstance(item, list):
            left.extend(item)
        elif isinstance(item, str):
            yield from forms(item)
        elif isinstance(item, (int, float, Decimal)):
            yield from {str(item), repr(item)}


def told(value: object) -> set[str]:
    """What an object says about itself."""
    try:
        return forms(str(value)) | forms(repr(value))
    except Exception:  # noqa: BLE001 - other people's __repr__ may do anything
        return {ANYTHING}
