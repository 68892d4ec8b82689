"""Display of a call's arguments: amounts and recipients come first, and truncated values are marked."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from markupsafe import Markup

from toolgate_service.console.filters import format_json, shown
from toolgate_service.core import strict_json
from toolgate_service.core.text_safety import in_reading_order, is_hidden, kind_of, redacted_text

#: Maximum length of a call's arguments on a card in a list, in characters of JSON. Longer arguments are truncated.
MAX_CARD_LENGTH = 4_000
#: Maximum number of values that are displayed individually. Further values are displayed together as JSON.
MAX_VALUES = 150
#: limits of truncated arguments: number of fields, and number of characters of a value
_FIRST_FIELDS = 8
_FIRST_CHARACTERS = 200
#: number of characters at the beginning of an argument's name that determine the argument's kind
_MAX_NAME = 100
#: Text with more characters than this is displayed as a block.
_BLOCK_LENGTH = 160
#: limits of a list that is displayed on one line: number of items, and number of characters of an item
_MAX_LIST_ITEMS = 12
_MAX_ITEM_LENGTH = 60

_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")


@dataclass(frozen=True, slots=True)
class Argument:
    """Argument of a call, prepared for display.

    Attributes:
        name: Name, as escaped HTML.
        kind: ``amount``, ``recipient`` or ``other``; it determines the order and the highlighting.
        shape: Form of display: ``text``, ``block``, ``word``, ``number``, ``hidden``, ``json``, ``list`` or ``group``.
        value: Value, as escaped HTML; empty for a group or list.
        inner: Members of a group or items of a list.
        size: Number of characters of a text, block or JSON value.
    """

    name: Markup
    kind: str
    shape: str
    value: Markup
    inner: tuple["Argument", ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a call, prepared for display.

    Attributes:
        shown: Arguments in the order of display.
        whole: True if the arguments are complete, False if they are truncated.
        raw: All arguments as JSON; empty if they are truncated.
        hidden: True if the agent's process has redacted some values; False if the arguments are truncated.
    """

    shown: tuple[Argument, ...]
    whole: bool
    raw: str
    hidden: bool


def lay_out(context: Mapping[str, Any], size: int, *, at_most: int | None) -> Arguments:
    """Prepare the arguments of a call for display.

    Args:
        context: The arguments.
        size: Length of the arguments as canonical JSON, in characters.
        at_most: Maximum `size`; longer arguments are truncated. None for no limit.
    """
    whole = at_most is None or size <= at_most
    fields = in_reading_order(context)
    if not whole:
        return Arguments(
            tuple(_first_characters(*field) for field in fields[:_FIRST_FIELDS]), whole, "", hidden=False
        )
    budget = _Budget(MAX_VALUES)
    one_by_one = tuple(_argument(name, value, budget) for name, value in fields[:MAX_VALUES])
    rest = dict(fields[MAX_VALUES:])
    if rest:
        name = Markup("{} more fields").format(len(rest))
        one_by_one += (Argument(name, "other", "json", shown(format_json(rest), lines=True), size=len(rest)),)
    return Arguments(one_by_one, whole, format_json(context), any(_find_hidden(context)))


class _Budget:
    """Number of further values that can be displayed individually."""

    def __init__(self, left: int) -> None:
        self.left = left


def _argument(name: str, value: Any, budget: _Budget, kind: str | None = None) -> Argument:
    budget.left -= 1
    kind = kind or kind_of(name[:_MAX_NAME])
    label = shown(name) if name else Markup('<span class="chr">no name</span>')
    if is_hidden(value):
        return Argument(label, kind, "hidden", _hidden(value))
    if (text := redacted_text(value)) is not None:
        note = Argument(Markup(""), kind, "hidden", _hidden(value, "partly hidden by the agent"))
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
    short = name[:60] + ("…" if len(name) > 60 else "")  # noqa: PLR2004 - width of a label
    return Argument(shown(short), kind_of(name[:_MAX_NAME]), "text", text_html)


def _number_items(items: list[Any]) -> list[tuple[str, Any]]:
    return [(str(index), item) for index, item in enumerate(items, 1)]


def _hidden(value: Mapping[str, Any], words: str = "hidden by the agent") -> Markup:
    size, digest = value.get("bytes"), str(value["$digest"])
    text_html = Markup("{}").format(words)
    if isinstance(size, int) and not isinstance(size, bool):
        text_html += Markup(", {:,} bytes").format(size)
    # The digest's first characters let the approver see whether two requests hide the same value. Malformed digests
    # are not displayed.
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
