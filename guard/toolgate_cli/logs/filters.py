"""Which log entries are meant, as options of a command."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from toolgate.action_name import valid_action
from toolgate.errors import ConfigurationError
from toolgate_cli.agents.finding import find_agent, is_id
from toolgate_cli.approvals.options import Environment
from toolgate_cli.approvals.spans import read_span
from toolgate_cli.management import Management
from toolgate_cli.output import fail


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
