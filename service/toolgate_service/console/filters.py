"""Template filters that format untrusted text, JSON, actions, times, numbers and the arguments of tool calls.

Text from agents may contain invisible, right-to-left or combining characters that make it look like other text. The
filters replace each such character by its code point, such as U+202E. Arguments of a call are sorted so that amounts
and recipients come first, and truncated values are marked.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any

from markupsafe import Markup, escape

from toolgate_service.core import strict_json
from toolgate_service.core.text_safety import (
    in_reading_order,
    is_hidden,
    is_invisible,
    kind_of,
    redacted_text,
)

_PLAIN = re.compile(r"[\x20-\x7e]+")
#: Regular expression that matches either a run of printable ASCII characters or one other character.
_RUNS = re.compile(r"[\x20-\x7e]+|.", re.DOTALL)
#: Maximum number of combining marks (such as accents) on one letter. With more, the letter would cover the lines above
#: and below.
_MAX_MARKS = 4
_MARKS = frozenset({"Mn", "Me", "Mc"})

_SEPARATORS = re.compile(r"[_\-]+")


def shown(text: object, *, lines: bool = False) -> Markup:
    """Return untrusted text as HTML in which every character is visible.

    Args:
        text: Untrusted text.
        lines: True to keep line breaks; False to replace each line break by its code point.
    """
    text = str(text)
    if text and text[0] != " " and text[-1] != " " and _PLAIN.fullmatch(text):
        return escape(text)
    return Markup("").join(_pieces(text, lines=lines))


def plain(text: object) -> str:
    """Return untrusted text with invisible characters escaped, for places that allow no HTML, such as page titles."""
    return "".join(_escape(run) if bad else run for run, bad in _runs(str(text)))


def format_json(value: object) -> str:
    """Return a value as indented JSON without rounding numbers. Invisible characters are escaped."""
    return "".join(_written(value, 0))


def _pieces(text: str, *, lines: bool) -> Iterator[Markup]:
    core = text.strip(" ")
    # Also replace each space at the beginning and end by its code point, because browsers do not display these spaces.
    yield from map(_named, text[: len(text) - len(text.lstrip(" "))])
    for run, bad in _runs(core):
        if run == "\n" and lines:
            yield Markup("\n")
        else:
            yield _named(run) if bad else escape(run)
    if core:
        yield from map(_named, text[len(text.rstrip(" ")) :])


@lru_cache(maxsize=512)
def _named(char: str) -> Markup:
    name = unicodedata.name(char, "character without a Unicode name")
    return Markup('<span class="chr" title="{}">U+{:04X}</span>').format(name.capitalize(), ord(char))


def _written(value: object, level: int) -> Iterator[str]:
    match value:
        case Mapping() if value:
            members = ((f"{_string(name)}: ", member) for name, member in value.items())
            yield from _container("{", members, "}", level)
        case [_, *_]:
            assert isinstance(value, Sequence)  # noqa: S101 - for the type checker, which does not infer the type
            yield from _container("[", (("", item) for item in value), "]", level)
        case str():
            yield _string(value)
        case bool() | None:
            yield strict_json.dumps(value)
        case int():
            yield str(value)
        case _:
            yield strict_json.dumps(value)


def _container(begin: str, members: Iterator[tuple[str, object]], end: str, level: int) -> Iterator[str]:
    inner = "\n" + "  " * (level + 1)
    separator = begin
    for name, member in members:
        yield from chain((separator, inner, name), _written(member, level + 1))
        separator = ","
    yield f"\n{'  ' * level}{end}"


def _string(text: str) -> str:
    return plain(json.dumps(text, ensure_ascii=False))


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Split text into runs of printable ASCII characters and single other characters.

    Yield each part with a flag, which is True if the part is a character that must be escaped.
    """
    marks = _MAX_MARKS
    for found in _RUNS.finditer(text):
        run = found.group()
        if " " <= run[0] <= "~":
            marks = 0
            yield run, False
            continue
        # `marks` counts consecutive combining marks. It starts at the maximum, so that a mark at the beginning of the
        # text is escaped. Otherwise a browser would draw this mark on the character before the text.
        marks = marks + 1 if unicodedata.category(run) in _MARKS else 0
        bad = marks > _MAX_MARKS or is_invisible(run)
        marks = _MAX_MARKS if bad else marks
        yield run, bad


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if not char.isascii() or not char.isprintable() else f"\\u{ord(char):04x}"


@dataclass(frozen=True, slots=True)
class ActionLabel:
    """Action split into two labels for people.

    Attributes:
        operation: Last part of the action, such as "create refund".
        service: Other parts of the action, such as "stripe"; empty for an action without a dot.
    """

    operation: str
    service: str


def describe_action(action: str) -> ActionLabel:
    """Return the readable labels of an action: ``stripe.create_refund`` becomes "create refund" and "stripe"."""
    *services, operation = [name for name in action.split(".") if name] or [action]
    return ActionLabel(
        _spaced(operation) or operation, " / ".join(_spaced(service) or service for service in services)
    )


def count(number: int, thing: str, things: str | None = None) -> str:
    """Return a number with its noun, in singular or plural: "1 agent", "2 agents", "1,000 agents"."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def utc(moment: datetime) -> str:
    """Format a time in UTC, truncated to the minute, such as "2026-11-23 21:05 UTC"."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def utc_exact(moment: datetime) -> str:
    """Format a time in UTC, truncated to the millisecond, such as "2026-11-23 21:05:09.120 UTC"."""
    return f"{moment.astimezone(UTC).isoformat(sep=' ', timespec='milliseconds')[:-6]} UTC"


def machine(moment: datetime) -> str:
    """Format a time in UTC for the ``datetime`` attribute of an HTML ``<time>`` element."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def _spaced(text: str) -> str:
    return _SEPARATORS.sub(" ", text).strip()


#: Maximum length of a call's arguments on a card in the inbox, in characters of JSON. Longer arguments are truncated.
MAX_CARD_LENGTH = 4_000
#: Maximum number of argument values that a page displays individually. Further values are displayed together as JSON.
MAX_VALUES = 150
#: Limits for the display of truncated arguments: number of fields, and number of characters of each value.
_FIRST_FIELDS = 8
_FIRST_CHARACTERS = 200
#: Number of characters of an argument's name from which the page decides whether the argument is an amount or a
#: recipient.
_MAX_NAME = 100
#: Texts with more characters than this are displayed as separate blocks.
_BLOCK_LENGTH = 160
#: Limits for displaying a list on one line: number of items, and number of characters of each item.
_MAX_LIST_ITEMS = 12
_MAX_ITEM_LENGTH = 60

_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool call, prepared for display.

    Attributes:
        name: Name of the argument, as escaped HTML.
        kind: ``amount``, ``recipient`` or ``other``; determines the argument's position and highlighting.
        shape: How the template displays the value. ``text``: short text; ``block``: long text in a separate block;
            ``number``; ``word``: true, false, null or an empty value; ``hidden``: note that the value is redacted;
            ``json``: indented JSON, for a value with too many members; ``list``: short list on one line; ``group``: one
            line for each member.
        value: Value as escaped HTML; empty for a group or list.
        inner: Members of a group, or items of a list.
        size: Number of characters of a text, block or JSON value. If the argument stands for all fields that are not
            displayed individually, the number of these fields.
    """

    name: Markup
    kind: str
    shape: str
    value: Markup
    inner: tuple["Argument", ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Arguments:
    """All arguments of a tool call, prepared for display.

    Attributes:
        shown: Arguments in the order of display.
        is_complete: False if the arguments are truncated.
        raw: All arguments as JSON; empty if they are truncated.
        hidden: True if the agent's process has redacted some values. Always False for truncated arguments.
    """

    shown: tuple[Argument, ...]
    is_complete: bool
    raw: str
    hidden: bool


def lay_out(context: Mapping[str, Any], size: int, *, at_most: int | None) -> Arguments:
    """Prepare the arguments of a tool call for display.

    Args:
        context: Values by argument name.
        size: Length of the arguments as canonical JSON, in characters.
        at_most: Largest `size` at which the arguments are not truncated; None if they are never truncated.
    """
    is_complete = at_most is None or size <= at_most
    fields = in_reading_order(context)
    if not is_complete:
        return Arguments(
            tuple(_first_characters(*field) for field in fields[:_FIRST_FIELDS]),
            is_complete,
            "",
            hidden=False,
        )
    budget = _Budget(MAX_VALUES)
    one_by_one = tuple(_argument(name, value, budget) for name, value in fields[:MAX_VALUES])
    rest = dict(fields[MAX_VALUES:])
    if rest:
        name = Markup("{} more fields").format(len(rest))
        one_by_one += (Argument(name, "other", "json", shown(format_json(rest), lines=True), size=len(rest)),)
    return Arguments(one_by_one, is_complete, format_json(context), any(_find_hidden(context)))


class _Budget:
    """Number of values that the page may still display individually. Nested arguments decrement the same object."""

    def __init__(self, left: int) -> None:
        self.left = left


def _argument(name: str, value: Any, budget: _Budget, kind: str | None = None) -> Argument:
    budget.left -= 1
    kind = kind or kind_of(name[:_MAX_NAME])
    label = shown(name) if name else Markup('<span class="chr">no name</span>')
    if is_hidden(value):
        return Argument(label, kind, "hidden", _hidden(value))
    if (text := redacted_text(value)) is not None:
        note = Argument(Markup(""), kind, "hidden", _hidden(value, "partly redacted by the agent"))
        return Argument(label, kind, "group", Markup(""), (Argument(Markup(""), kind, *_scalar(text)), note))
    if isinstance(value, dict | list) and value:
        if len(value) > budget.left:
            text = format_json(value)
            return Argument(label, kind, "json", shown(text, lines=True), size=len(text))
        if isinstance(value, list) and _is_short(value):
            budget.left -= len(value)
            items = tuple(_argument("", item, budget, kind) for item in value)
            return Argument(label, kind, "list", Markup(""), items)
        members = in_reading_order(value) if isinstance(value, dict) else _number_items(value)
        return Argument(label, kind, "group", Markup(""), tuple(_argument(*one, budget) for one in members))
    return Argument(label, kind, *_scalar(value))


def _is_short(items: list[Any]) -> bool:
    return len(items) <= _MAX_LIST_ITEMS and all(
        isinstance(item, str | int | Decimal) and len(str(item)) <= _MAX_ITEM_LENGTH for item in items
    )


def _scalar(value: Any) -> tuple[str, Markup, tuple[Argument, ...], int]:
    if not isinstance(value, str):
        word = isinstance(value, bool | dict | list) or value is None
        return "word" if word else "number", shown(strict_json.dumps(value)), (), 0
    if not value:
        return "word", Markup("empty text"), (), 0
    block = len(value) > _BLOCK_LENGTH or "\n" in value
    return "block" if block else "text", shown(value, lines=block), (), len(value)


def _first_characters(name: str, value: Any) -> Argument:
    text = value if isinstance(value, str) else format_json(value)
    text_html = shown(text[:_FIRST_CHARACTERS])
    if len(text) > _FIRST_CHARACTERS:
        text_html += Markup(' <span class="cut">… {:,} more characters</span>').format(
            len(text) - _FIRST_CHARACTERS
        )
    short = name[:60] + ("…" if len(name) > 60 else "")  # noqa: PLR2004 - maximum length of a label
    return Argument(shown(short), kind_of(name[:_MAX_NAME]), "text", text_html)


def _number_items(items: list[Any]) -> list[tuple[str, Any]]:
    return [(str(index), item) for index, item in enumerate(items, 1)]


def _hidden(value: Mapping[str, Any], words: str = "redacted by the agent") -> Markup:
    size, digest = value.get("bytes"), str(value["$digest"])
    text_html = Markup("{}").format(words)
    if isinstance(size, int) and not isinstance(size, bool):
        text_html += Markup(", {:,} bytes").format(size)
    # Show the first characters of the digest: if they are equal in two requests, the hidden values are probably equal
    # too. Do not show a malformed digest.
    if _DIGEST.fullmatch(digest):
        text_html += Markup(" <code>{}…</code>").format(digest[: digest.index(":") + 9])
    return text_html


def _find_hidden(value: Any) -> Iterator[bool]:
    if isinstance(value, dict):
        yield is_hidden(value) or redacted_text(value) is not None
        for member in value.values():
            yield from _find_hidden(member)
    elif isinstance(value, list):
        for item in value:
            yield from _find_hidden(item)
