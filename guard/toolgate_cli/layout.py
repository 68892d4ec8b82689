"""Layout of a tool call's context on a terminal, so that no value can be mistaken for another field.

The context contains the arguments of the call. Strings are printed in quotation marks, with all unsafe characters
escaped. This module breaks long lines, because the terminal would continue them at its left edge. Continuation lines
begin with the same vertical bar as all other lines, and are indented further than the names of fields.

Fields with amounts come first, then fields with recipients, then all others. A field is classified by the words of its
name, which is split at ``_``, ``-``, ``.``, spaces and capitals: ``refund_amount``, ``refundAmount`` and ``amount`` are
amounts, ``amounted`` is not.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from toolgate_cli.output import sanitize

#: a field is an amount if its name contains one of these words
AMOUNT_WORDS = frozenset({
    "amount", "amounts", "total", "sum", "price", "cost", "fee", "currency", "cents", "quantity", "qty",
})  # fmt: skip

#: a field is a recipient if its name contains one of these words
RECIPIENT_WORDS = frozenset({
    "to", "cc", "bcc", "recipient", "recipients", "email", "emails", "customer", "account", "destination", "payee",
    "beneficiary", "iban", "phone", "address", "user", "channel", "host", "url",
})  # fmt: skip

#: maximum characters of a string that are shown without `full`
MAX_TEXT = 500
#: maximum members of a list or an object that are shown without `full`
MAX_MEMBERS = 30

BAR = "  │ "

_MAX_SUMMARY = 100
_MAX_SUMMARY_TEXT = 40
_MAX_SUMMARY_FIELDS = 8
#: minimum cells (columns of the terminal) in a line, used also on a narrower terminal
_MIN_WIDTH = 40
_INDENT = 2
_MAX_NAME = 60
_MAX_NAME_COLUMN = 22

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")
# Matches one piece of a text that is never split over two lines: an escape sequence, or one character.
_PIECE = re.compile(r"\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2}|.)|.", re.DOTALL)
_TEXT_WORD = re.compile(r"[^ ]+| +")


class Layout:
    """Formats values as lines of a terminal.

    Args:
        width: number of cells (columns of the terminal) in a line.
        full: show long values completely.

    Attributes:
        cut: number of values that were shortened so far.
    """

    def __init__(self, width: int, *, full: bool = False) -> None:
        self._width = max(width, _MIN_WIDTH)
        self._full = full
        self.cut = 0

    def context(self, context: Mapping[str, Any]) -> list[str]:
        """Return the lines that show a context, the arguments of a tool call."""
        if is_hidden(context):
            return [*self._wrap(BAR, "", _hidden_text(dict(context)))]
        if not context:
            return [f"{BAR}(no arguments)"]
        return [*self._members([(_name(name), value) for name, value in sort_fields(context)], 0)]

    def value(self, name: str, value: Any) -> list[str]:
        """Return the lines that show one field of a context."""
        return [*self._members([(_name(name), value)], 0)]

    def line(self, label: str, text: str, *, column: int = 13) -> list[str]:
        """Return the lines that show a label and a sanitized text, without the vertical bar that marks a context."""
        return [*self._wrap("  ", f"{label:<{column}}", text, by_lines=False)]

    def _members(self, members: list[tuple[str, Any]], depth: int) -> Iterator[str]:
        shown = members if self._full else members[:MAX_MEMBERS]
        column = min(max((len(name) for name, _ in shown), default=0), _MAX_NAME_COLUMN) + 2
        margin = BAR + " " * min(depth * _INDENT, self._width - _MIN_WIDTH + _INDENT)
        for name, value in shown:
            if _has_members(value):
                yield from self._wrap(margin, name, "")
                yield from self._members(_sorted_members(value), depth + 1)
            else:
                yield from self._wrap(margin, f"{name:<{column}}", self._leaf(value))
        if len(shown) < len(members):
            self.cut += 1
            yield f"{margin}… {len(members) - len(shown):,} more, shown by --full"

    def _leaf(self, value: Any) -> str:
        if is_hidden(value):
            return _hidden_text(value)
        if (text := redacted_text(value)) is not None:
            return f"{self._text(text)} ({_hidden_text(value, 'partly redacted')})"
        return self._text(value) if isinstance(value, str) else _scalar(value)

    def _text(self, value: str) -> str:
        if self._full or len(value) <= MAX_TEXT:
            return _quote(value)
        self.cut += 1
        return f"{_quote(value[:MAX_TEXT])} … {len(value) - MAX_TEXT:,} more characters, shown by --full"

    def _wrap(self, margin: str, label: str, text: str, *, by_lines: bool = True) -> Iterator[str]:
        # Continuation lines are aligned with the first character of `text`. After a long label, they are indented by 4
        # cells instead.
        below_text = text and len(label) <= min(_MAX_NAME_COLUMN + 2, self._width // 2)
        hanging = margin + " " * (len(label) if below_text else 4)
        line, room, is_new = margin, self._room(margin), False
        for piece, word_cells in _pieces(label + text):
            if _cells(piece) > room or room < word_cells <= self._room(hanging):
                yield line
                line, room = hanging, self._room(hanging)
            line += piece
            room -= _cells(piece)
            is_new = by_lines and piece == "\\n"
            if is_new:
                # A line break in the value is printed as the escape \n, and a new line of output begins after it.
                yield line
                line, room = hanging, self._room(hanging)
        if not is_new:
            yield line

    def _room(self, margin: str) -> int:
        return self._width - 1 - _cells(margin)


def summarize(context: Mapping[str, Any]) -> str:
    """Return a context as one short line, in which redacted values are marked."""
    if is_hidden(context):
        return "(redacted)"
    fields = sort_fields(context)
    parts = [f"{_name(name)}={_short(value)}" for name, value in fields[:_MAX_SUMMARY_FIELDS]]
    if len(fields) > _MAX_SUMMARY_FIELDS:
        parts.append(f"… {len(fields) - _MAX_SUMMARY_FIELDS:,} more")
    text = " ".join(parts)
    return text if len(text) <= _MAX_SUMMARY else f"{text[: _MAX_SUMMARY - 1]}…"


def sort_fields(context: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields of a context with amounts first, then recipients, then others; each group keeps its order."""
    return sorted(context.items(), key=lambda field: _rank(field[0]))


def is_hidden(value: Any) -> bool:
    """Return whether only the digest of this value is known, so that the value itself cannot be shown."""
    return _has_digest(value) and value.keys() <= {"$digest", "bytes", "$object"}


def redacted_text(value: Any) -> str | None:
    """Return the text of a value in which only the secrets are masked, or None for any other value."""
    if _has_digest(value) and value.keys() <= {"$redacted", "$digest", "bytes"}:
        text = value.get("$redacted")
        return text if isinstance(text, str) else None
    return None


def find_hidden(value: Any, name: str = "") -> Iterator[str]:
    """Yield the paths, such as `customer.emails[0]`, of all values that are hidden completely or partly."""
    if _has_digest(value):
        yield name or "everything"
    if isinstance(value, dict):
        for key, member in value.items():
            yield from find_hidden(member, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from find_hidden(member, f"{name}[{index}]")


def _has_digest(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("$digest"), str)


def _rank(name: str) -> int:
    words = {word.lower() for word in _WORDS.findall(name)}
    if words & AMOUNT_WORDS:
        return 0 if name == "amount" else 1
    return 2 if words & RECIPIENT_WORDS else 3


def _short(value: Any) -> str:
    if is_hidden(value):
        return "(redacted)"
    if (text := redacted_text(value)) is not None:
        return f"{_short(text)} (partly redacted)"
    if isinstance(value, str):
        return _quote(value[:_MAX_SUMMARY_TEXT]) + ("…" if len(value) > _MAX_SUMMARY_TEXT else "")
    if isinstance(value, dict | list) and value:
        hidden = " (redacted)" if any(find_hidden(value)) else ""
        return f"{{…{hidden}}}" if isinstance(value, dict) else f"[…{hidden}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else sanitize(value)


def _quote(text: str) -> str:
    return f'"{sanitize(text, quote=chr(34))}"'


def _sorted_members(value: dict[str, Any] | list[Any]) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(_name(name), member) for name, member in sort_fields(value)]
    return [(f"[{index}]", member) for index, member in enumerate(value)]


def _name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return (
        _quote(name) if len(name) <= _MAX_NAME else f"{_quote(name[:_MAX_NAME])}…({len(name):,} characters)"
    )


def _has_members(value: Any) -> bool:
    is_leaf = is_hidden(value) or redacted_text(value) is not None
    return isinstance(value, dict | list) and bool(value) and not is_leaf


def _hidden_text(value: dict[str, Any], text: str = "redacted") -> str:
    size, digest = value.get("bytes"), str(value["$digest"])
    if "$object" in value:
        text += f", a {sanitize(value['$object'])}"
    if isinstance(size, int) and not isinstance(size, bool):
        text += f", {size:,} bytes"
    # The first digits of the digest show an approver whether two requests hide the same value.
    return f"{text} ({digest[: digest.index(':') + 9]}…)" if _DIGEST.fullmatch(digest) else text


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Yield the pieces of a text that must not be split over two lines, each with a number.

    For the first piece of a word, the number is the width of the whole word in cells (columns of the terminal). For all
    other pieces, the number is 0.
    """
    for word in _TEXT_WORD.findall(text):
        word_cells = _cells(word.split("\\n", 1)[0])
        for piece in _PIECE.findall(word):
            yield piece, word_cells
            word_cells = 0


def _cells(text: str) -> int:
    # Characters of ambiguous width take one or two cells, depending on the terminal, and are counted as two cells. If
    # they were counted as one cell, a line could be too long. The terminal would then continue the line at the left
    # edge, outside of the bar.
    return sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in text)
