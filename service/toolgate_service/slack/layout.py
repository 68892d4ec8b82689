"""Layout of a context as lines of a code block, in which no value can imitate another field.

Strings and unusual names are quoted, and invisible characters are escaped. Every line begins with a bar (│), and bars
in values are escaped. Therefore a reader can distinguish a new line from the rest of a line that Slack wraps.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from toolgate_service.core.text_safety import in_reading_order, is_hidden, redacted_text, visible

#: Characters that are escaped in values: the bar, because it begins a line; the backquote, because it can end a code
#: block; and repeated spaces, because a value could fill up the line with them and imitate the next line.
_RESERVED = re.compile("[`│]|(?<= ) +")


def in_code(text: object, *, quote: str = "") -> str:
    """Return a text for use in a code block, on one line, with invisible and reserved characters escaped."""
    return _RESERVED.sub(lambda found: "".join(map(_escape, found.group())), visible(text, quote=quote))


def escape_text(text: str) -> str:
    """Escape the three characters that start links, mentions and entities in Slack."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def span(text: object) -> str:
    """Return a text as inline code, in which Slack does not interpret formatting, links or mentions."""
    return f"`{escape_text(in_code(text))}`"


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if char.isascii() else f"\\u{ord(char):04x}"


#: limits of an abridged context: characters of a string, and members of a list or an object
MAX_TEXT = 500
MAX_MEMBERS = 30

WIDTH = 72
BAR = "│ "
#: maximum indent in characters, so that deeply nested values still have most of the line
_MAX_INDENT = 32
_STEP = 2
_MAX_NAME = 60
_MAX_NAME_COLUMN = 22
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")
# One escape sequence or one character: lines are wrapped only between two such pieces.
_PIECE = re.compile(r"\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2}|.)|.", re.DOTALL)


class Layout:
    """Formatter of a context.

    Args:
        full: True to format the complete context; False to shorten long values.

    Attributes:
        cut: Number of values that were shortened.
    """

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self.cut = 0

    def context(self, context: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of a context. Important fields, such as amounts and recipients, come first."""
        if is_hidden(context):
            yield from _wrapped(BAR, "", _hidden(context))
        elif not context:
            yield f"{BAR}(no arguments)"
        else:
            yield from self._members([(_name(name), value) for name, value in in_reading_order(context)], 0)

    def _members(self, members: list[tuple[str, Any]], depth: int) -> Iterator[str]:
        shown = members if self._full else members[:MAX_MEMBERS]
        column = min(max((len(name) for name, _ in shown), default=0), _MAX_NAME_COLUMN) + 2
        margin = BAR + " " * min(depth * _STEP, _MAX_INDENT)
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
        if self._full or len(value) <= MAX_TEXT:
            return quoted(value)
        self.cut += 1
        return f"{quoted(value[:MAX_TEXT])} … {len(value) - MAX_TEXT:,} more characters, not shown"


def labelled(label: str, text: str) -> Iterator[str]:
    """Yield the lines that show a label and, after it, a text that is already escaped."""
    yield from _wrapped(BAR, f"{label + ' ':<13}", text)


def quoted(value: str) -> str:
    """Return a string in double quotes, escaped for use in a code block."""
    return f'"{in_code(value, quote=chr(34))}"'


def _wrapped(margin: str, label: str, text: str) -> Iterator[str]:
    # Continuation lines are aligned with the text, or indented by four spaces if the label is long.
    under = text and len(label) <= _MAX_NAME_COLUMN + 2
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
    if len(name) <= _MAX_NAME:
        return quoted(name)
    return f"{quoted(name[:_MAX_NAME])}…({len(name):,} characters)"


def _has_members(value: Any) -> bool:
    leaf = is_hidden(value) or redacted_text(value) is not None
    return isinstance(value, dict | list) and bool(value) and not leaf


def _hidden(value: Mapping[str, Any], label: str = "hidden from you") -> str:
    size, digest = value.get("bytes"), str(value["$digest"])
    if "$object" in value:
        label += f", a {in_code(str(value['$object'])[:_MAX_NAME])}"
    if isinstance(size, int) and not isinstance(size, bool):
        label += f", {size:,} bytes"
    # Eight digits of the digest suffice to recognize equal redacted values in two requests.
    return f"{label} ({digest[: digest.index(':') + 9]}…)" if _DIGEST.fullmatch(digest) else label


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
