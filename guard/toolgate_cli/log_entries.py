"""Entries of the activity log, and the options that filter them."""

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict

from toolgate._capture.jsontext import dumps, read_decimal
from toolgate._options import valid_action
from toolgate.errors import ConfigurationError
from toolgate_cli.agents import find_agent
from toolgate_cli.client import GatewayClient, GatewayError, Query, is_id, parse_model
from toolgate_cli.layout import is_hidden, redacted_text, sort_fields
from toolgate_cli.options import Environment, parse_duration
from toolgate_cli.output import fail, sanitize, truncate

LOGS_PATH: Final = "/api/logs"
EXPORT_PATH: Final = "/api/logs/export"

#: maximum bytes of a line in an export; every valid entry is shorter, because the arguments of
#: its tool call have at most 64 KiB
_MAX_LINE: Final = 4 * 1024 * 1024
_MAX_CONTEXT_TEXT: Final = 100
_MAX_FIELDS: Final = 20


class LogStatus(StrEnum):
    """Status of a log entry: the outcome of the tool call."""

    SUCCESS = "success"
    FAILED = "failed"
    PENDING = "pending"
    DENIED = "denied"


_MOMENT = "a time such as 2026-01-31T12:00:00Z (UTC by default), or a duration before now, such as 2h"
AgentFilter = Annotated[
    str | None,
    typer.Option(
        "--agent", help="Show only entries of this agent: its name or id; for a deleted agent, only its id."
    ),
]
ActionFilter = Annotated[
    str | None, typer.Option("--action", help="Show only entries with this action, such as stripe.refund.")
]
StatusFilter = Annotated[
    LogStatus | None, typer.Option("--status", help="Show only entries with this status.")
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help=f"Show only entries from this time on: {_MOMENT}."),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help=f"Show only entries before this time: {_MOMENT}.")
]
TextFilter = Annotated[
    str | None,
    typer.Option(
        "--query",
        "--text",
        help="Show only entries that contain this text in any field, in upper or lower case.",
    ),
]


class LogEntry(BaseModel):
    """An entry of the activity log, which records one tool call, as the gateway's API returns it."""

    model_config = ConfigDict(frozen=True)

    id: str
    agent_name: str
    action: str
    status: str
    context: dict[str, Any] | None = None
    created_at: AwareDatetime

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells of the entry's table row, with unsafe characters escaped.

        The cells are the time in UTC, the status, the agent, the action, and the arguments of the tool call.
        """
        return (
            f"{self.created_at:%Y-%m-%d %H:%M:%S}",
            sanitize(self.status),
            truncate(sanitize(self.agent_name)),
            sanitize(self.action),
            truncate(_context_text(self.context or {}), _MAX_CONTEXT_TEXT),
        )


@dataclass(frozen=True, slots=True)
class Filters:
    """Values of the options that filter log entries; `agent` is a name or an id."""

    agent: str | None
    action: str | None
    status: LogStatus | None
    environment: Environment

    def query(self, client: GatewayClient) -> dict[str, str | int | None]:
        """Return the filters as query parameters of a request; the name of an agent is replaced by its id.

        Raises:
            GatewayError: a request failed.
            typer.Exit: the action is invalid, or the agent does not exist.
        """
        if self.action is not None:
            try:
                valid_action(self.action)
            except ConfigurationError as error:
                fail(f"--action: {error}")
        agent_id = self.agent
        if agent_id is not None and not is_id(agent_id):
            agent_id = find_agent(client, agent_id, self.environment).id
        return {
            "environment": self.environment,
            "agent_id": agent_id,
            "action": self.action,
            "status": self.status,
        }


def parse_entry(raw: Any) -> LogEntry:
    """Return a log entry from its JSON.

    Raises:
        GatewayError: the JSON is not a log entry.
    """
    return parse_model(LogEntry, raw, "log entry")


def stream_entries(client: GatewayClient, query: Query) -> Generator[tuple[LogEntry, dict[str, Any]]]:
    """Yield the entries of an export, newest first, each with its JSON."""
    for line in split_lines(client.stream(EXPORT_PATH, {**query, "format": "jsonl"})):
        try:
            raw = json.loads(line, parse_float=read_decimal)
        except (ValueError, RecursionError):
            raise GatewayError("the gateway sent an invalid log entry: not JSON") from None
        yield parse_entry(raw), raw


def split_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a text that arrives in chunks; a chunk may contain several lines, or a part of a line.

    Raises:
        GatewayError: a line is longer than any log entry can be.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > _MAX_LINE:
            raise GatewayError("the gateway sent an invalid log entry: it is too long")
    if rest:
        yield rest


def parse_moment(text: str | None, option: str) -> datetime | None:
    """Return the value of a time option such as `--from` as a time in UTC, or None if the option is not given.

    Raises:
        typer.Exit: the text is neither a time nor a duration.
    """
    if text is None:
        return None
    try:
        try:
            return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
        except ValueError:
            moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        fail(
            f"invalid {option} {text[:40]!r}: write a time such as 2026-01-31T12:00:00Z, or a duration before now, "
            "such as 2h"
        )


def time_query(begins: str | None, ends: str | None) -> dict[str, str | int | None]:
    """Return the values of `--from` and `--to` as query parameters of a request.

    Raises:
        typer.Exit: a value is invalid, or `--to` is not later than `--from`.
    """
    first, last = parse_moment(begins, "--from"), parse_moment(ends, "--to")
    if first and last and last <= first:
        fail("--to must be later than --from")
    return {"from": first.isoformat() if first else None, "to": last.isoformat() if last else None}


def contains_text(raw: Any, text: str | None) -> bool:
    """Return whether a field's name or value in an entry's JSON contains `text`, ignoring case.

    The result is True if `text` is None.
    """
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


def _context_text(context: dict[str, Any]) -> str:
    fields = sort_fields(context)[:_MAX_FIELDS]
    return " ".join(f"{sanitize(name)}={_value_text(value)}" for name, value in fields)


def _value_text(value: Any) -> str:
    if is_hidden(value):
        return "hidden"
    if (text := redacted_text(value)) is not None:
        value = text
    if isinstance(value, str):
        # A value may have many kilobytes, so it is shortened before `sanitize` processes it.
        shown = sanitize(value[:_MAX_CONTEXT_TEXT], quote='"')
        return f'"{shown}"' if not shown or " " in shown else shown
    return sanitize(dumps(value)[:_MAX_CONTEXT_TEXT])
