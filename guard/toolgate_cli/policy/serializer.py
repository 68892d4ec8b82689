"""Text of values in YAML, for new policy files and for the parts of a file that `toolgate policy pull` changes."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from toolgate._capture.jsontext import dumps

#: maximum characters of a list or a mapping that is written on one line
_MAX_LINE: Final = 100
_INDENT: Final = 2
#: texts that some parsers of YAML read as another type
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_PLAIN: Final = re.compile(r"[A-Za-z][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*")
#: largest code of a character that has a short escape sequence
_MAX_SHORT: Final = 0xFFFF
#: texts that are never plain in a flow collection
_FLOW: Final = re.compile(r"[,\[\]{}]")
_SPECIAL: Final = re.compile(
    "[^\x09\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


def block_lines(value: Any) -> list[str]:
    """Return the lines of a value that is not written on one line: a mapping with members, or a list with items."""
    return list(_mapping(value) if isinstance(value, dict) else _sequence(value))


def json_text(value: Any, margin: str = "") -> str:
    """Return a value as JSON with a line for each member and for each item of a list of objects."""
    inner = f"{margin}  "
    if isinstance(value, dict) and value:
        lines = [f"{inner}{dumps(name)}: {json_text(member, inner)}" for name, member in value.items()]
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        lines = [f"{inner}{json_text(one, inner)}" for one in value]
    else:
        return dumps(value)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([first, ",\n".join(lines), f"{margin}{last}"])


def inline(value: Any, *, in_flow: bool = False) -> str:
    """Return the text of a value on one line."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{inline(k, in_flow=True)}: {inline(v, in_flow=True)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(inline(one, in_flow=True) for one in value) + "]"
    if isinstance(value, str):
        return _string(value, in_flow=in_flow)
    return f"{value:f}" if isinstance(value, Decimal) else dumps(value)


def is_inline(value: Any) -> bool:
    """Return whether a value is written on one line: all values except mappings, lists of mappings, and long lists."""
    if isinstance(value, dict):
        return not value
    if isinstance(value, list):
        return not any(isinstance(one, dict | list) for one in value) and len(inline(value)) <= _MAX_LINE
    return True


def _mapping(value: dict[str, Any]) -> Iterator[str]:
    for key, member in value.items():
        yield from member_lines(key, member)


def member_lines(key: str, value: Any) -> list[str]:
    """Return the lines of a member of a mapping."""
    name = inline(key)
    if is_inline(value):
        return [f"{name}: {inline(value)}"]
    return [f"{name}:", *(f"{' ' * _INDENT}{line}" for line in block_lines(value))]


def item_lines(value: Any) -> list[str]:
    """Return the lines of an item of a list."""
    if is_inline(value):
        return [f"- {inline(value)}"]
    first, *others = block_lines(value)
    return [f"- {first}", *(f"  {line}" for line in others)]


def _sequence(value: list[Any]) -> Iterator[str]:
    for item in value:
        yield from item_lines(item)


def _string(text: str, *, in_flow: bool) -> str:
    is_plain = (
        _PLAIN.fullmatch(text) is not None
        and text.lower() not in _WORDS
        and not any(part in text for part in (": ", " #"))
        and not text.endswith((":", " ", "\t"))
        and not (in_flow and _FLOW.search(text))
        and not _SPECIAL.search(text)
        and "\t" not in text
    )
    if is_plain:
        return text
    if '"' in text and "\\" not in text and not _SPECIAL.search(text) and "\t" not in text:
        return "'" + text.replace("'", "''") + "'"
    return _SPECIAL.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\u{code:04x}" if code <= _MAX_SHORT else f"\\U{code:08x}"
