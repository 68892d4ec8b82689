"""A call's arguments laid out to be read: amounts and recipients first, everything whole or said not to be."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from markupsafe import Markup

from toolgate_service import exact_json
from toolgate_service.console.text import pretty, shown
from toolgate_service.readable.fields import in_reading_order, is_hidden, kind_of, redacted_text

#: characters of JSON that a card among others shows
ON_A_CARD = 4_000
#: values that are laid out one by one; beyond it they stand as JSON
ONE_BY_ONE = 150
#: where not everything is shown: fields, and characters of a value
_FIRST_FIELDS = 8
_FIRST_CHARACTERS = 200
#: characters of a name by which it is judged
_NAME = 100
#: a text that stands in a box of its own
_LONG = 160
#: a list that stands on one line: so many items of so many characters
_MOST_ITEMS = 12
_SHORT = 60

_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")


@dataclass(frozen=True, slots=True)
class Argument:
    """A named value.

    Attributes:
        name: as HTML.
        kind: ``amount``, ``recipient`` or ``other``.
        shape: ``text``, ``block``, ``word``, ``number``, ``hidden``, ``json``, ``list`` or ``group``.
        value: as HTML; empty for a group and a list.
        inner: a group's members, a list's items.
        size: characters of a block.
    """

    name: Markup
    kind: str
    shape: str
    value: Markup
    inner: tuple["Argument", ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a call would be made with.

    Attributes:
        shown: in reading order.
        whole: whether that is everything.
        raw: all of it as JSON; empty where it is not whole.
        hidden: whether something in it is hidden by the agent's process.
    """

    shown: tuple[Argument, ...]
    whole: bool
    raw: str
    hidden: bool


def laid_out(context: Mapping[str, Any], size: int, *, at_most: int | None) -> Arguments:
    """Lay out a context.

    Args:
        context: the call's.
        size: the length of its canonical text.
        at_most: beyond so many characters only the beginning is shown; None to show everything.
    """
    whole = at_most is None or size <= at_most
    fields = in_reading_order(context)
    if not whole:
        return Arguments(tuple(_cut(*field) for field in fields[:_FIRST_FIELDS]), whole, "", hidden=False)
    room = _Room(ONE_BY_ONE)
    one_by_one = tuple(_argument(name, value, room) for name, value in fields[:ONE_BY_ONE])
    rest = dict(fields[ONE_BY_ONE:])
    if rest:
        name = Markup("{} more fields").format(len(rest))
        one_by_one += (Argument(name, "other", "json", shown(pretty(rest), lines=True), size=len(rest)),)
    return Arguments(one_by_one, whole, pretty(context), any(_hidden_in(context)))


class _Room:
    """How many values may still be laid out one by one."""

    def __init__(self, left: int) -> None:
        self.left = left


def _argument(name: str, value: Any, room: _Room, kind: str | None = None) -> Argument:
    room.left -= 1
    kind = kind or kind_of(name[:_NAME])
    label = shown(name) if name else Markup('<span class="chr">no name</span>')
    if is_hidden(value):
        return Argument(label, kind, "hidden", _hidden(value))
    if (text := redacted_text(value)) is not None:
        note = Argument(Markup(""), kind, "hidden", _hidden(value, "partly hidden by the agent"))
        return Argument(label, kind, "group", Markup(""), (Argument(Markup(""), kind, *_scalar(text)), note))
    if isinstance(value, dict | list) and value:
        if len(value) > room.left:
            text = pretty(value)
            return Argument(label, kind, "json", shown(text, lines=True), size=len(text))
        if isinstance(value, list) and _is_short(value):
            room.left -= len(value)
            items = tuple(_argument("", item, room, kind) for item in value)
            return Argument(label, kind, "list", Markup(""), items)
        members = in_reading_order(value) if isinstance(value, dict) else _numbered(value)
        return Argument(label, kind, "group", Markup(""), tuple(_argument(*one, room) for one in members))
    return Argument(label, kind, *_scalar(value))


def _is_short(items: list[Any]) -> bool:
    return len(items) <= _MOST_ITEMS and all(
        isinstance(item, str | int | Decimal) and len(str(item)) <= _SHORT for item in items
    )


def _scalar(value: Any) -> tuple[str, Markup, tuple[Argument, ...], int]:
    if not isinstance(value, str):
        word = isinstance(value, bool | dict | list) or value is None
        return "word" if word else "number", shown(exact_json.dumps(value)), (), 0
    if not value:
        return "word", Markup("empty text"), (), 0
    block = len(value) > _LONG or "\n" in value
    return "block" if block else "text", shown(value, lines=block), (), len(value)


def _cut(name: str, value: Any) -> Argument:
    text = value if isinstance(value, str) else pretty(value)
    told = shown(text[:_FIRST_CHARACTERS])
    if len(text) > _FIRST_CHARACTERS:
        told += Markup(' <span class="cut">… {:,} more characters</span>').format(
            len(text) - _FIRST_CHARACTERS
        )
    short = name[:60] + ("…" if len(name) > 60 else "")  # noqa: PLR2004 - as much as a label takes
    return Argument(shown(short), kind_of(name[:_NAME]), "text", told)


def _numbered(items: list[Any]) -> list[tuple[str, Any]]:
    return [(str(index), item) for index, item in enumerate(items, 1)]


def _hidden(value: Mapping[str, Any], words: str = "hidden by the agent") -> Markup:
    size, digest = value.get("bytes"), str(value["$digest"])
    told = Markup("{}").format(words)
    if isinstance(size, int) and not isinstance(size, bool):
        told += Markup(", {:,} bytes").format(size)
    # Enough to see whether two requests hide the same; what has no such form is not repeated.
    if _DIGEST.fullmatch(digest):
        told += Markup(" <code>{}…</code>").format(digest[: digest.index(":") + 9])
    return told


def _hidden_in(value: Any) -> Iterator[bool]:
    if isinstance(value, dict):
        yield is_hidden(value) or redacted_text(value) is not None
        for member in value.values():
            yield from _hidden_in(member)
    elif isinstance(value, list):
        for item in value:
            yield from _hidden_in(item)
