"""File formats of exported log entries: JSON lines, and CSV with protection against formula injection."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from toolgate_service.core import strict_json
from toolgate_service.core.clock import utcnow, wire
from toolgate_service.logs.models import LogEntry

Format: TypeAlias = Literal["jsonl", "csv"]
#: an entry and the name of its agent
NamedEntry: TypeAlias = tuple[LogEntry, str]

COLUMNS = (
    "id", "organization_id", "agent_id", "agent_name", "action", "status", "ip_address", "created_at", "occurred_at",
    "decision_id", "approval_id", "call_id", "run_id", "context",
)  # fmt: skip

#: characters that begin a formula in a spreadsheet, including their full-width forms
_SIGN = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
#: characters that a spreadsheet may ignore before a formula: white space, control characters, quotes, zero-width
#: characters
_SKIPPED = r"\s\"\x00-\x1f\x7f\u0085\u00ad\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
#: characters that begin a new cell or row in programs that use another delimiter than the comma
_BREAKS = r";,|\t\r\n\x0b\x0c\x1c-\x1e\u0085\u2028\u2029"

_START = re.compile(rf"[\t\r]|[{_SKIPPED}]*+{_SIGN}")
# The quantifiers are possessive, so that the expression does not backtrack: the time stays linear in the text's length.
_RUN = re.compile(rf"([{_SKIPPED}{_BREAKS}]++)({_SIGN})?")
_RUN_IN_STRING = re.compile(
    rf"(\A(?:[{_SKIPPED}{_BREAKS}]|\\[nrt\"])*+|(?:[{_SKIPPED}{_BREAKS}]|\\[nrt\"])++)({_SIGN})?"
)
_LAST_BREAK = re.compile(rf"[{_BREAKS}](?=[^{_BREAKS}]*+\Z)")
_BREAK_IN_STRING = re.compile(rf"[{_BREAKS}]|\\[nrt]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')


class FileFormat(NamedTuple):
    """Format of an exported file.

    Attributes:
        media_type: Media type of the file.
        header: Bytes at the start of the file.
        write: Function that serializes entries.
    """

    media_type: str
    header: bytes
    write: Callable[[Iterable[NamedEntry]], bytes]


def download_headers(environment: str, form: Format) -> dict[str, str]:
    """Return the `Content-Disposition` header, with which browsers save the response as a file with this name."""
    name = f"toolgate-logs-{environment}-{utcnow():%Y-%m-%d}.{form}"
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def text_cell(text: str) -> str:
    """Insert an apostrophe before each character of a text that could begin a formula in a spreadsheet.

    Some programs read CSV files with ``;``, ``|`` or tabs as delimiters. For them, the quotes around a cell do not
    protect its content, so characters after such delimiters get an apostrophe too.
    """
    guarded = _RUN.sub(_with_apostrophe, text)
    return f"'{guarded}" if _START.match(guarded) else guarded


def json_cell(text: str) -> str:
    """Return equivalent JSON in which characters that could begin a formula are written as escape sequences."""
    return _STRING.sub(lambda found: f'"{_RUN_IN_STRING.sub(_escaped, found[0][1:-1])}"', text)


def _with_apostrophe(found: re.Match[str]) -> str:
    run, sign = found.groups()
    last = _LAST_BREAK.search(run) if sign else None
    return found[0] if last is None else f"{run[: last.end()]}'{run[last.end() :]}{sign}"


def _escaped(found: re.Match[str]) -> str:
    run, sign = found.groups()
    begins = found.start() == 0 or _BREAK_IN_STRING.search(run)
    return f"{run}\\u{ord(sign):04x}" if sign and begins else found[0]


def _jsonl(entries: Iterable[NamedEntry]) -> bytes:
    return "".join(map(_json_line, entries)).encode()


def _json_line(named: NamedEntry) -> str:
    entry, agent_name = named
    fields = {name: getattr(entry, name) for name in COLUMNS if name not in {"agent_name", "context"}}
    written = strict_json.dumps(fields | {"agent_name": agent_name})
    # The stored context is inserted unchanged: it is already JSON, with the numbers as the client sent them.
    return f'{written[:-1]},"context":{entry.context or "null"}}}\n'


def _csv(entries: Iterable[NamedEntry]) -> bytes:
    return _csv_rows(
        [_cell(name, agent_name if name == "agent_name" else getattr(entry, name)) for name in COLUMNS]
        for entry, agent_name in entries
    )


def _cell(name: str, value: str | datetime | None) -> str:
    if isinstance(value, datetime):
        return wire(value)
    return json_cell(value or "") if name == "context" else text_cell(value or "")


def _csv_rows(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


FORMATS: Mapping[Format, FileFormat] = MappingProxyType(
    {
        "jsonl": FileFormat("application/jsonl", b"", _jsonl),
        "csv": FileFormat("text/csv", _csv_rows([COLUMNS]), _csv),
    }
)
