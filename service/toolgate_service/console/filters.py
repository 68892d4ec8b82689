"""Template filters that format untrusted text, JSON, actions, times and numbers.

Text from agents may contain invisible, right-to-left or combining characters that make it look like other text. The
filters show such a character as its code point, such as U+202E.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain

from markupsafe import Markup, escape

from toolgate_service.core import strict_json
from toolgate_service.core.text_safety import is_invisible

_PLAIN = re.compile(r"[\x20-\x7e]+")
#: matches either a run of printable ASCII characters or a single other character
_RUNS = re.compile(r"[\x20-\x7e]+|.", re.DOTALL)
#: Maximum number of combining marks on one letter. With more marks, the letter would overlap the lines above and below.
_MAX_MARKS = 4
_MARKS = frozenset({"Mn", "Me", "Mc"})

_SEPARATORS = re.compile(r"[_\-]+")


def shown(text: object, *, lines: bool = False) -> Markup:
    """Return untrusted text as HTML in which every character is visible.

    Args:
        text: Untrusted text.
        lines: Keep line breaks. If False, a line break is shown as its code point.
    """
    text = str(text)
    if text and text[0] != " " and text[-1] != " " and _PLAIN.fullmatch(text):
        return escape(text)
    return Markup("").join(_pieces(text, lines=lines))


def plain(text: object) -> str:
    """Return untrusted text with escaped invisible characters, for places that allow no HTML, such as page titles."""
    return "".join(_escape(run) if bad else run for run, bad in _runs(str(text)))


def format_json(value: object) -> str:
    """Return a value as indented JSON. Numbers are not rounded, and invisible characters are escaped."""
    return "".join(_written(value, 0))


def _pieces(text: str, *, lines: bool) -> Iterator[Markup]:
    core = text.strip(" ")
    # Spaces at the beginning and end are shown as code points too, because they would be invisible.
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
    """Split text into runs of printable ASCII and single other characters.

    Yield each part together with a flag, which is True if the part must be escaped.
    """
    marks = _MAX_MARKS
    for found in _RUNS.finditer(text):
        run = found.group()
        if " " <= run[0] <= "~":
            marks = 0
            yield run, False
            continue
        # The count starts at the maximum, so that a combining mark at the beginning is escaped: it would combine with
        # the character that precedes the text on the page.
        marks = marks + 1 if unicodedata.category(run) in _MARKS else 0
        bad = marks > _MAX_MARKS or is_invisible(run)
        marks = _MAX_MARKS if bad else marks
        yield run, bad


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if not char.isascii() or not char.isprintable() else f"\\u{ord(char):04x}"


@dataclass(frozen=True, slots=True)
class ActionLabel:
    """Action, split into two readable labels.

    Attributes:
        operation: For example "create refund".
        service: For example "stripe"; empty for an action without a dot.
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
    """Return a number with its noun in singular or plural: "1 agent", "2 agents", "1,000 agents"."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def utc(moment: datetime) -> str:
    """Format a time in UTC, truncated to the minute, such as "2026-11-23 21:05 UTC"."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def utc_exact(moment: datetime) -> str:
    """Format a time in UTC, truncated to the millisecond, such as "2026-11-23 21:05:09.120 UTC"."""
    return f"{moment.astimezone(UTC).isoformat(sep=' ', timespec='milliseconds')[:-6]} UTC"


def machine(moment: datetime) -> str:
    """Format a time for the ``datetime`` attribute of a ``<time>`` element."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def _spaced(text: str) -> str:
    return _SEPARATORS.sub(" ", text).strip()
