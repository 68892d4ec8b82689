"""Log entries, as the gateway tells of them, and the line that a person reads of one."""

import json
from collections.abc import Generator, Iterator
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict

from toolgate._capture.jsontext import dumps, read_decimal
from toolgate_cli.answers import ManagementError, read_as
from toolgate_cli.approvals.fields import in_reading_order, is_hidden, redacted_text
from toolgate_cli.management import Management, Query
from toolgate_cli.tables import cell
from toolgate_cli.visible import visible

PATH = "/api/logs"
EXPORT = "/api/logs/export"

#: longer than any entry: its context has at most 64 KiB
_LONGEST_LINE = 4 * 1024 * 1024
_LONGEST_CONTEXT = 100
_MOST_FIELDS = 20


class Entry(BaseModel):
    """What an agent did. What the gateway says beyond this stays in `raw`."""

    model_config = ConfigDict(frozen=True)

    id: str
    agent_name: str
    action: str
    status: str
    context: dict[str, Any] | None = None
    created_at: AwareDatetime

    @property
    def when(self) -> str:
        """The moment, to the second, in UTC."""
        return f"{self.created_at:%Y-%m-%d %H:%M:%S}"

    @property
    def cells(self) -> tuple[str, ...]:
        """What a person reads of it, safe to print."""
        return (
            self.when,
            visible(self.status),
            cell(visible(self.agent_name)),
            visible(self.action),
            cell(_told(self.context or {}), _LONGEST_CONTEXT),
        )


def read_entry(raw: Any) -> Entry:
    """Return an entry from the gateway's JSON.

    Raises:
        ManagementError: it is none.
    """
    return read_as(Entry, raw, "log entry")


def stream_raw(management: Management, query: Query) -> Generator[dict[str, Any]]:
    """Yield the entries of an export, newest first; each is one.

    Raises:
        ManagementError: the gateway refused, did not answer, broke off, or sent something else.
    """
    for line in lines_of(management.pieces(EXPORT, {**query, "format": "jsonl"})):
        try:
            raw = json.loads(line, parse_float=read_decimal)
        except (ValueError, RecursionError):
            raise ManagementError("the gateway sent a log entry that is no JSON") from None
        read_entry(raw)
        yield raw


def lines_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a text that comes in pieces, without their ends.

    Raises:
        ManagementError: a line has no end.
    """
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > _LONGEST_LINE:
            raise ManagementError("the gateway sent a log entry that has no end")
    if rest:
        yield rest


def _told(context: dict[str, Any]) -> str:
    fields = in_reading_order(context)[:_MOST_FIELDS]
    return " ".join(f"{visible(name)}={_value(value)}" for name, value in fields)


def _value(value: Any) -> str:
    if is_hidden(value):
        return "hidden"
    if (text := redacted_text(value)) is not None:
        value = text
    if isinstance(value, str):
        # Cut before it is escaped: a value may have kilobytes, the line has a hundred characters.
        shown = visible(value[:_LONGEST_CONTEXT], quote='"')
        return f'"{shown}"' if not shown or " " in shown else shown
    return visible(dumps(value)[:_LONGEST_CONTEXT])
