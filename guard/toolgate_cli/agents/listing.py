"""``toolgate agents list`` and ``show``."""

import typer

from toolgate_cli.agents.finding import Agent, AgentName, get_agent, iter_agents
from toolgate_cli.approvals.layout import Layout
from toolgate_cli.approvals.options import AsJson, Environment, InEnvironment
from toolgate_cli.approvals.pages import ascii_json, terminal_width
from toolgate_cli.approvals.spans import since
from toolgate_cli.conversation import stored_login
from toolgate_cli.tables import Column, cell, print_table
from toolgate_cli.visible import visible

_COLUMNS = (
    Column("id", whole=True),
    Column("name"),
    Column("status", whole=True),
    Column("age", whole=True),
    Column("description"),
)


def list_(environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False) -> None:
    """List agents, newest first."""
    with stored_login() as management:
        found = list(iter_agents(management, environment))
    if as_json:
        typer.echo(ascii_json([raw for _, raw in found]))
    elif not found:
        typer.echo(f"no agents at {management.url}, {environment}")
    else:
        print_table(_COLUMNS, (_row(agent) for agent, _ in found))


def show(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Show one agent."""
    with stored_login() as management:
        found, raw = get_agent(management, agent, environment)
    if as_json:
        typer.echo(ascii_json(raw))
        return
    layout = Layout(terminal_width())
    typer.echo(f"Agent {visible(found.id)} · {visible(found.status)}")
    told = {
        "name": found.told,
        "created": f"{since(found.created_at)} ago, at {management.url}, {environment}",
    }
    if found.description:
        told["description"] = visible(found.description)
    for label, text in told.items():
        for line in layout.line(label, text):
            typer.echo(line)


def _row(agent: Agent) -> tuple[str, ...]:
    return (
        visible(agent.id),
        agent.told,
        visible(agent.status),
        since(agent.created_at),
        cell(visible(agent.description or "")),
    )
