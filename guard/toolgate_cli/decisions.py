"""``toolgate decisions``: list the gateway's decisions about checks."""

from enum import StrEnum
from itertools import chain, islice
from typing import Annotated, Final

import typer
from pydantic import AwareDatetime, BaseModel

from toolgate._options import valid_action
from toolgate.errors import ConfigurationError
from toolgate_cli.agents import find_agent
from toolgate_cli.client import is_id, parse_model
from toolgate_cli.credentials import stored_session
from toolgate_cli.log_entries import From, To, time_query
from toolgate_cli.options import Environment, EnvironmentOption, JsonLines
from toolgate_cli.output import Column, fail, print_json, print_table, sanitize, truncate

DECISIONS_PATH: Final = "/api/decisions"

_COLUMNS: Final = (
    Column("time (UTC)", no_wrap=True),
    Column("outcome", no_wrap=True),
    Column("reason code", no_wrap=True),
    Column("agent"),
    Column("action"),
    Column("id", no_wrap=True),
)


class Outcome(StrEnum):
    """Outcome of a decision."""

    ALLOWED = "allowed"
    DENIED = "denied"
    APPROVAL_REQUIRED = "approval_required"


class Decision(BaseModel):
    """A record of the decision log, as the gateway's API returns it."""

    id: str
    agent_id: str | None
    agent_name: str | None = None
    requested_agent: str | None
    action: str
    outcome: str
    reason_code: str
    created_at: AwareDatetime

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells of the decision's table row, with unsafe characters escaped."""
        return (
            f"{self.created_at:%Y-%m-%d %H:%M:%S}",
            sanitize(self.outcome),
            sanitize(self.reason_code),
            truncate(sanitize(self.agent_name or self.agent_id or f"unknown: {self.requested_agent}")),
            sanitize(self.action),
            sanitize(self.id),
        )


def decisions(
    agent: Annotated[
        str | None,
        typer.Option(
            help="Show only decisions about this agent: its name or id; for a deleted agent, only its id."
        ),
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Show only decisions about this action, such as stripe.refund.")
    ] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Show only decisions with this outcome.")] = None,
    reason_code: Annotated[
        str | None, typer.Option(help="Show only decisions with this reason code, such as no_permission.")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Show only decisions of this agent run.")
    ] = None,
    rule_id: Annotated[
        str | None, typer.Option("--rule", metavar="RULE", help="Show only decisions that this rule made.")
    ] = None,
    begins: From = None,
    ends: To = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of decisions to show.")] = 50,
    offset: Annotated[
        int, typer.Option(min=0, max=10_000_000, help="Number of decisions to skip, to show a later page.")
    ] = 0,
    as_json: JsonLines = False,
) -> None:
    """List decisions about checks that match all filters, newest first."""
    times = time_query(begins, ends)
    if action is not None:
        try:
            valid_action(action)
        except ConfigurationError as error:
            fail(f"--action: {error}")
    with stored_session() as client:
        agent_id = agent
        if agent is not None and not is_id(agent):
            agent_id = find_agent(client, agent, environment).id
        query = {
            "environment": environment,
            "agent_id": agent_id,
            "action": action,
            "outcome": outcome,
            "reason_code": reason_code,
            "run_id": run_id,
            "rule_id": rule_id,
            **times,
        }
        found = chain.from_iterable(client.pages(DECISIONS_PATH, query))
        raws = list(islice(found, offset, offset + limit))
        rows = [parse_model(Decision, raw, "decision").cells for raw in raws]
        has_more = len(raws) == limit and any(True for _ in found)
    if as_json:
        for raw in raws:
            print_json(raw)
    elif not rows:
        typer.echo(f"no decisions in the {environment} environment at {client.url}")
    else:
        print_table(_COLUMNS, rows)
        if has_more:
            typer.echo(f"there are more decisions; --offset {offset + limit} shows the next page")
