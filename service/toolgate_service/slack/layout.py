"""A context laid out for Slack, in lines of code blocks, so that no value can pass itself off as something else.

Strings stand in quotes, and in them everything that cannot be seen is an escape; a name that is not plain stands in
quotes as well. Every line begins with a bar that stands in no value, so that where Slack breaks a line on a narrow
screen, what goes on is not taken for a field.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from toolgate_service.readable.fields import in_reading_order, is_hidden, redacted_text
from toolgate_service.slack.code import in_code

#: characters of a string, and members of a list or an object, that are shown where not everything is
LONGEST_TEXT = 500
MOST_MEMBERS = 30

WIDTH = 72
BAR = "│ "
#: columns that an inner object may stand further in: its values keep the rest of the line
_DEEPEST = 32
_STEP = 2
_LONGEST_NAME = 60
_WIDEST_COLUMN = 22
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")
# An escape is not torn apart.
_PIECE = re.compile(r"\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2}|.)|.", re.DOTALL)


class Layout:
    """Lays out values.

    Args:
        full: cut nothing.

    Attributes:
        cut: how many values were cut so far.
    """

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self.cut = 0

    def context(self, context: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of a context, amounts and recipients first."""
        if is_hidden(context):
            yield from _wrapped(BAR, "", _hidden(context))
        elif not context:
            yield f"{BAR}(no arguments)"
        else:
            yield from self._members([(_name(name), value) for name, value in in_reading_order(context)], 0)

    def _members(self, members: list[tuple[str, Any]], depth: int) -> Iterator[str]:
        shown = members if self._full else members[:MOST_MEMBERS]
        column = min(max((len(name) for name, _ in shown), default=0), _WIDEST_COLUMN) + 2
        margin = BAR + " " * min(depth * _STEP, _DEEPEST)
        for name, value in shown:
            if _has_members(value):
                yield from _wrapped(margin, name, "")
                yield from self._members(_inside(value), depth + 1)
            else:
                yield from _wrapped(margin, f"{name:<{column}}", self._one(value))
        if len(shown) < len(members):
            self.cut += 1
            yield f"{margin}… {len(members) - len(shown):,} more, not shown"

    def _one(self, value: Any) -> str:
        if is_hidden(value):
            return _hidden(value)
        if (text := redacted_text(value)) is not None:
            return f"{self._text(text)} ({_hidden(value, 'partly hidden from you')})"
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bool) or value is None:
            return {True: "true", False: "false", None: "null"}[value]
        if isinstance(value, Decimal):
            return f"{value:f}"
        return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else in_code(value)

    def _text(self, value: str) -> str:
        if self._full or len(value) <= LONGEST_TEXT:
            return quoted(value)
        self.cut += 1
        return f"{quoted(value[:LONGEST_TEXT])} … {len(value) - LONGEST_TEXT:,} more characters, not shown"


def labelled(label: str, text: str) -> Iterator[str]:
    """Yield the lines of a text, already safe, behind a label of ours."""
    yield from _wrapped(BAR, f"{label + ' ':<13}", text)


def quoted(value: str) -> str:
    """Return a string in quotes."""
    return f'"{in_code(value, quote=chr(34))}"'


def _wrapped(margin: str, label: str, text: str) -> Iterator[str]:
    # What goes on stands under the text, or a little further in than a label that is too long for that.
    under = text and len(label) <= _WIDEST_COLUMN + 2
    hanging = margin + " " * (len(label) if under else 4)
    line, room = margin, WIDTH - _cells(margin)
    for piece in _PIECE.findall(label + text):
        if _cells(piece) > room:
            yield line
            line, room = hanging, WIDTH - _cells(hanging)
        line += piece
        room -= _cells(piece)
    yield line


def _inside(value: dict[str, Any] | list[Any]) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(_name(name), member) for name, member in in_reading_order(value)]
    return [(f"[{index}]", member) for index, member in enumerate(value)]


def _name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    if len(name) <= _LONGEST_NAME:
        return quoted(name)
    return f"{quoted(name[:_LONGEST_NAME])}…({len(name):,} characters)"


def _has_members(value: Any) -> bool:
    leaf = is_hidden(value) or redacted_text(value) is not None
    return isinstance(value, dict | list) and bool(value) and not leaf


def _hidden(value: Mapping[str, Any], told: str = "hidden from you") -> str:
    size, digest = value.get("bytes"), str(value["$digest"])
    if "$object" in value:
        told += f", a {in_code(str(value['$object'])[:_LONGEST_NAME])}"
    if isinstance(size, int) and not isinstance(size, bool):
        told += f", {size:,} bytes"
    # Enough to see whether two requests hide the same; what has no such form is not repeated.
    return f"{told} ({digest[: digest.index(':') + 9]}…)" if _DIGEST.fullmatch(digest) else told


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
