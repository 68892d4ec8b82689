"""Log entries as a table shows them: a line each, however much they say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from toolgate_service import exact_json
from toolgate_service.console.text import shown
from toolgate_service.console.words import ActionWords, action_in_words
from toolgate_service.logs.lines import BEGINNING, Line
from toolgate_service.readable.fields import in_reading_order, is_hidden, kind_of, redacted_text

#: fields of a line, and characters of a value and of what is not laid out
_FIELDS = 4
_CHARACTERS = 60
_RAW = 160


@dataclass(frozen=True, slots=True)
class Row:
    """An entry as a table shows it.

    Attributes:
        line: which.
        action: its action in words.
        fields: the first of its arguments: kind, name and value as HTML.
        more: how many fields there are beside them.
        raw: the beginning of arguments that are too long to be laid out, as HTML.
    """

    line: Line
    action: ActionWords
    fields: Sequence[tuple[str, Markup, Markup]] = ()
    more: int = 0
    raw: str = ""


def rows_of(lines: Sequence[Line]) -> Sequence[Row]:
    """Lay out lines for a table."""
    return [_row(line) for line in lines]


def _row(line: Line) -> Row:
    action = action_in_words(line.action)
    if line.beginning is None:
        return Row(line, action)
    if line.size > BEGINNING:
        return Row(line, action, raw=shown(line.beginning[:_RAW]))
    context: Any = exact_json.loads_own(line.beginning)
    return Row(line, action, _first(context), max(0, len(context) - _FIELDS))


def _first(context: Mapping[str, Any]) -> Sequence[tuple[str, Markup, Markup]]:
    first = in_reading_order(context)[:_FIELDS]
    return [(kind_of(name), _clipped(name) or Markup("no name"), _value(value)) for name, value in first]


def _value(value: Any) -> Markup:
    if is_hidden(value):
        return Markup("hidden")
    if (text := redacted_text(value)) is not None:
        return _clipped(text)
    return _clipped(value if isinstance(value, str) else exact_json.dumps(value))


def _clipped(text: str) -> Markup:
    return shown(text[:_CHARACTERS]) + ("…" if len(text) > _CHARACTERS else "")
