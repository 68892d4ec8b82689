"""Text of others, made safe to look at: what cannot be seen is named, and nothing leaves the place it stands in."""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from markupsafe import Markup, escape

from toolgate_service import exact_json
from toolgate_service.readable.characters import is_hidden

_PLAIN = re.compile(r"[\x20-\x7e]+")
#: plain characters as long as they go on, and every other one alone
_RUNS = re.compile(r"[\x20-\x7e]+|.", re.DOTALL)
#: marks upon one letter; more of them reach into the lines above and below
_MOST_MARKS = 4
_MARKS = frozenset({"Mn", "Me", "Mc"})


def shown(text: object, *, lines: bool = False) -> Markup:
    """Return a text as HTML in which every character can be seen.

    Args:
        text: anybody's.
        lines: whether line breaks are kept; otherwise they are named like all that cannot be seen.
    """
    text = str(text)
    if text and text[0] != " " and text[-1] != " " and _PLAIN.fullmatch(text):
        return escape(text)
    return Markup("").join(_pieces(text, lines=lines))


def plain(text: object) -> str:
    """Return a text for where HTML cannot stand: a title, a notification. What cannot be seen is an escape."""
    return "".join(_escape(run) if bad else run for run, bad in _judged(str(text)))


def pretty(value: object) -> str:
    """Write a value as JSON to be read: indented, numbers exact, everything that cannot be seen an escape."""
    return "".join(_written(value, 0))


def _pieces(text: str, *, lines: bool) -> Iterator[Markup]:
    core = text.strip(" ")
    # Spaces at an edge would not be seen.
    yield from map(_named, text[: len(text) - len(text.lstrip(" "))])
    for run, bad in _judged(core):
        if run == "\n" and lines:
            yield Markup("\n")
        else:
            yield _named(run) if bad else escape(run)
    if core:
        yield from map(_named, text[len(text.rstrip(" ")) :])


@lru_cache(maxsize=512)
def _named(char: str) -> Markup:
    name = unicodedata.name(char, "a character without a name")
    return Markup('<span class="chr" title="{}">U+{:04X}</span>').format(name.capitalize(), ord(char))


def _written(value: object, level: int) -> Iterator[str]:
    match value:
        case Mapping() if value:
            members = ((f"{_string(name)}: ", member) for name, member in value.items())
            yield from _container("{", members, "}", level)
        case [_, *_]:
            assert isinstance(value, Sequence)  # noqa: S101 - for the type checker
            yield from _container("[", (("", item) for item in value), "]", level)
        case str():
            yield _string(value)
        case bool() | None:
            yield exact_json.dumps(value)
        case int():
            yield str(value)
        case _:
            yield exact_json.dumps(value)


def _container(begin: str, members: Iterator[tuple[str, object]], end: str, level: int) -> Iterator[str]:
    inner = "\n" + "  " * (level + 1)
    separator = begin
    for name, member in members:
        yield from chain((separator, inner, name), _written(member, level + 1))
        separator = ","
    yield f"\n{'  ' * level}{end}"


def _string(text: str) -> str:
    return plain(json.dumps(text, ensure_ascii=False))


def _judged(text: str) -> Iterator[tuple[str, bool]]:
    """Yield runs of plain characters and each other one, and whether it must not be shown as it is."""
    marks = _MOST_MARKS
    for found in _RUNS.finditer(text):
        run = found.group()
        if " " <= run[0] <= "~":
            marks = 0
            yield run, False
            continue
        # One that has nothing to stand on would change what stands before the text.
        marks = marks + 1 if unicodedata.category(run) in _MARKS else 0
        bad = marks > _MOST_MARKS or is_hidden(run)
        marks = _MOST_MARKS if bad else marks
        yield run, bad


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if not char.isascii() or not char.isprintable() else f"\\u{ord(char):04x}"
