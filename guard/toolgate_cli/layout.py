"""Layout of a context for reading, so that no value can be mistaken for another field."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from toolgate_cli.output import visible

#: a field is an amount when one of these is a word of its name
AMOUNT_WORDS = frozenset({
    "amount", "amounts", "total", "sum", "price", "cost", "fee", "currency", "cents", "quantity", "qty",
})  # fmt: skip

#: likewise a recipient, unless it is an amount
RECIPIENT_WORDS = frozenset({
    "to", "cc", "bcc", "recipient", "recipients", "email", "emails", "customer", "account", "destination", "payee",
    "beneficiary", "iban", "phone", "address", "user", "channel", "host", "url",
})  # fmt: skip

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def in_reading_order(context: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields: amounts, then recipients, then the rest; each group as the gateway has it."""
    return sorted(context.items(), key=lambda field: _rank(field[0]))


def is_hidden(value: Any) -> bool:
    """Say whether nothing is shown of a value but its digest (decisions §13)."""
    return _has_digest(value) and value.keys() <= {"$digest", "bytes", "$object"}


def redacted_text(value: Any) -> str | None:
    """Return the visible part of a text whose secrets are masked, or None for any other value (decisions §13)."""
    if _has_digest(value) and value.keys() <= {"$redacted", "$digest", "bytes"}:
        text = value.get("$redacted")
        return text if isinstance(text, str) else None
    return None


def hidden_names(value: Any, name: str = "") -> Iterator[str]:
    """Yield the dotted names of everything in a value that is hidden, wholly or in part."""
    if _has_digest(value):
        yield name or "everything"
    if isinstance(value, dict):
        for key, member in value.items():
            yield from hidden_names(member, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from hidden_names(member, f"{name}[{index}]")


def _has_digest(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("$digest"), str)


def _rank(name: str) -> int:
    words = _words(name)
    if words & AMOUNT_WORDS:
        return 0 if name == "amount" else 1
    return 2 if words & RECIPIENT_WORDS else 3


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(name)}


#: characters of a string, and members of a list or an object, that are shown unless all are asked for
LONGEST_TEXT = 500
MOST_MEMBERS = 30

#: characters of a context in a table, and of one text in it, and fields that it names
LONGEST_SUMMARY = 100
LONGEST_VALUE = 40
MOST_NAMED = 8

#: narrower terminals are taken for this wide
NARROWEST = 40

BAR = "  │ "
_STEP = 2
_LONGEST_NAME = 60
_WIDEST_COLUMN = 22
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")
# An escape is not torn apart.
_PIECE = re.compile(r"\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2}|.)|.", re.DOTALL)
_WORD = re.compile(r"[^ ]+| +")


class Layout:
    """Lays out values for a terminal.

    Args:
        width: the terminal's, in cells.
        full: cut nothing.

    Attributes:
        cut: how many values were cut so far.
    """

    def __init__(self, width: int, *, full: bool = False) -> None:
        self._width = max(width, NARROWEST)
        self._full = full
        self.cut = 0

    def context(self, context: Mapping[str, Any]) -> list[str]:
        """Return the lines of a context, amounts and recipients first."""
        if is_hidden(context):
            return [*self._wrapped(BAR, "", _hidden(dict(context)))]
        if not context:
            return [f"{BAR}(no arguments)"]
        return [*self._members([(_name(name), value) for name, value in in_reading_order(context)], 0)]

    def value(self, name: str, value: Any) -> list[str]:
        """Return the lines of one field."""
        return [*self._members([(_name(name), value)], 0)]

    def line(self, label: str, text: str, *, column: int = 13) -> list[str]:
        """Return a labelled text, already safe, outside of any context."""
        return [*self._wrapped("  ", f"{label:<{column}}", text, by_lines=False)]

    def _members(self, members: list[tuple[str, Any]], depth: int) -> Iterator[str]:
        shown = members if self._full else members[:MOST_MEMBERS]
        column = min(max((len(name) for name, _ in shown), default=0), _WIDEST_COLUMN) + 2
        margin = BAR + " " * min(depth * _STEP, self._width - NARROWEST + _STEP)
        for name, value in shown:
            if _has_members(value):
                yield from self._wrapped(margin, name, "")
                yield from self._members(_inside(value), depth + 1)
            else:
                yield from self._wrapped(margin, f"{name:<{column}}", self._one(value))
        if len(shown) < len(members):
            self.cut += 1
            yield f"{margin}… {len(members) - len(shown):,} more, shown by --full"

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
        return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else visible(value)

    def _text(self, value: str) -> str:
        if self._full or len(value) <= LONGEST_TEXT:
            return f'"{visible(value, quote=chr(34))}"'
        self.cut += 1
        more = len(value) - LONGEST_TEXT
        return f'"{visible(value[:LONGEST_TEXT], quote=chr(34))}" … {more:,} more characters, shown by --full'

    def _wrapped(self, margin: str, label: str, text: str, *, by_lines: bool = True) -> Iterator[str]:
        # What goes on stands under the text, or a little further in than a label that is too long for that.
        under = text and len(label) <= min(_WIDEST_COLUMN + 2, self._width // 2)
        hanging = margin + " " * (len(label) if under else 4)
        line, room, fresh = margin, self._room(margin), False
        for piece, together in _pieces(label + text):
            if _cells(piece) > room or room < together <= self._room(hanging):
                yield line
                line, room = hanging, self._room(hanging)
            line += piece
            room -= _cells(piece)
            fresh = by_lines and piece == "\\n"
            if fresh:
                # A line of the value is a line here, with its end in sight.
                yield line
                line, room = hanging, self._room(hanging)
        if not fresh:
            yield line

    def _room(self, margin: str) -> int:
        return self._width - 1 - _cells(margin)


def summary(context: Mapping[str, Any]) -> str:
    """Return a context as one short line, safe to print: amounts and recipients first, hidden values marked."""
    if is_hidden(context):
        return "(hidden)"
    fields = in_reading_order(context)
    parts = [f"{_name(name)}={_short(value)}" for name, value in fields[:MOST_NAMED]]
    if len(fields) > MOST_NAMED:
        parts.append(f"… {len(fields) - MOST_NAMED:,} more")
    text = " ".join(parts)
    return text if len(text) <= LONGEST_SUMMARY else f"{text[: LONGEST_SUMMARY - 1]}…"


def _short(value: Any) -> str:
    if is_hidden(value):
        return "(hidden)"
    if (text := redacted_text(value)) is not None:
        return f"{_short(text)} (partly hidden)"
    if isinstance(value, str):
        cut = value[:LONGEST_VALUE]
        return f'"{visible(cut, quote=chr(34))}"' + ("…" if cut != value else "")
    if isinstance(value, dict | list) and value:
        hidden = " (hidden)" if any(hidden_names(value)) else ""
        return f"{{…{hidden}}}" if isinstance(value, dict) else f"[…{hidden}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else visible(value)


def _inside(value: dict[str, Any] | list[Any]) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(_name(name), member) for name, member in in_reading_order(value)]
    return [(f"[{index}]", member) for index, member in enumerate(value)]


def _name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    if len(name) <= _LONGEST_NAME:
        return f'"{visible(name, quote=chr(34))}"'
    return f'"{visible(name[:_LONGEST_NAME], quote=chr(34))}"…({len(name):,} characters)'


def _has_members(value: Any) -> bool:
    leaf = is_hidden(value) or redacted_text(value) is not None
    return isinstance(value, dict | list) and bool(value) and not leaf


def _hidden(value: dict[str, Any], told: str = "hidden from you") -> str:
    size, digest = value.get("bytes"), str(value["$digest"])
    if "$object" in value:
        told += f", a {visible(value['$object'])}"
    if isinstance(size, int) and not isinstance(size, bool):
        told += f", {size:,} bytes"
    # Enough to see whether two requests hide the same; what has no such form is not repeated.
    return f"{told} ({digest[: digest.index(':') + 9]}…)" if _DIGEST.fullmatch(digest) else told


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Yield what is not torn apart, and how many cells the word has that begins with it; inside of a word 0."""
    for word in _WORD.findall(text):
        together = _cells(word.split("\\n", 1)[0])
        for piece in _PIECE.findall(word):
            yield piece, together
            together = 0


def _cells(text: str) -> int:
    # Rather too many than too few: a terminal that has less room would break the line itself, at its very left.
    return sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in text)
