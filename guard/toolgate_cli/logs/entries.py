"""Log entries: their model, their stream, and the filters that choose them."""

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict

from toolgate._capture.jsontext import dumps, read_decimal
from toolgate.action_name import valid_action
from toolgate.errors import ConfigurationError
from toolgate_cli.agents import find_agent, is_id
from toolgate_cli.client import Management, ManagementError, Query, read_as
from toolgate_cli.durations import read_span
from toolgate_cli.layout import in_reading_order, is_hidden, redacted_text
from toolgate_cli.options import Environment
from toolgate_cli.output import cell, fail, visible

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
            cell(_context_text(self.context or {}), _LONGEST_CONTEXT),
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


def _context_text(context: dict[str, Any]) -> str:
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


class LogStatus(StrEnum):
    """What came of a call (spec §2)."""

    SUCCESS = "success"
    FAILED = "failed"
    PENDING = "pending"
    DENIED = "denied"


OfAgent = Annotated[
    str | None,
    typer.Option("--agent", help="Only this agent's, by its name or id; a deleted one's by its id."),
]
OfAction = Annotated[str | None, typer.Option("--action", help="Only this action.")]
OfStatus = Annotated[LogStatus | None, typer.Option("--status", help="Only what came out so.")]
_MOMENT = "a moment such as 2026-01-31T12:00:00Z (UTC unless it says otherwise), or a span ago such as 2h"
From = Annotated[str | None, typer.Option("--from", metavar="MOMENT", help=f"Not before {_MOMENT}.")]
To = Annotated[str | None, typer.Option("--to", metavar="MOMENT", help=f"Before {_MOMENT}.")]
Containing = Annotated[
    str | None, typer.Option("--text", help="Only with this text anywhere in it, in capitals or not.")
]


@dataclass(frozen=True, slots=True)
class Filters:
    """What was written to choose entries.

    Attributes:
        agent: a name or an id.
        action: the action.
        status: what came of it.
        environment: the environment.
    """

    agent: str | None
    action: str | None
    status: LogStatus | None
    environment: Environment

    def query(self, management: Management) -> dict[str, str | int | None]:
        """Return what the gateway is asked.

        Raises:
            ManagementError: the gateway refused or did not answer.
            typer.Exit: there is no such agent or action; one line says so.
        """
        if self.action is not None:
            try:
                valid_action(self.action)
            except ConfigurationError as error:
                fail(f"--action: {error}")
        agent_id = self.agent
        if agent_id is not None and not is_id(agent_id):
            agent_id = find_agent(management, agent_id, self.environment).id
        return {
            "environment": self.environment,
            "agent_id": agent_id,
            "action": self.action,
            "status": self.status,
        }


def moment(text: str | None, option: str) -> datetime | None:
    """Return the moment that was written, or None where none was.

    Raises:
        typer.Exit: it is none; one line says how to write one.
    """
    if text is None:
        return None
    try:
        try:
            return datetime.now(UTC) - timedelta(seconds=read_span(text))
        except ValueError:
            read = datetime.fromisoformat(text.strip())
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        fail(f"{option}: {text[:40]!r} is no moment; write one as 2026-01-31T12:00:00Z, or a span ago as 2h")


def span_query(begins: str | None, ends: str | None) -> dict[str, str | int | None]:
    """Return the part of a query that is about time.

    Raises:
        typer.Exit: a moment is none, or the span is empty.
    """
    first, last = moment(begins, "--from"), moment(ends, "--to")
    if first and last and last <= first:
        fail("--to must be later than --from")
    return {"from": first.isoformat() if first else None, "to": last.isoformat() if last else None}


def contains(raw: Any, text: str | None) -> bool:
    """Say whether a text stands anywhere in an entry, be it a name, a value or a part of one."""
    if text is None:
        return True
    wanted = text.casefold()
    return any(wanted in found.casefold() for found in _texts(raw))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield str(name)
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)
    elif isinstance(value, bool) or value is None:
        yield {True: "true", False: "false", None: "null"}[value]
    else:
        yield str(value)
