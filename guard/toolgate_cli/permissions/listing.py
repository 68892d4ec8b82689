"""``toolgate permissions list``."""

import typer

from toolgate_cli.agents.finding import AgentName, find_agent
from toolgate_cli.approvals.options import AsJson, Environment, InEnvironment
from toolgate_cli.approvals.pages import ascii_json
from toolgate_cli.conversation import stored_login
from toolgate_cli.permissions.finding import Permission, iter_permissions
from toolgate_cli.tables import Column, print_table
from toolgate_cli.visible import visible

_COLUMNS = (Column("action"), Column("max amount", right=True), Column("approval"), Column("id", whole=True))


def list_(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """List what an agent may do, newest first."""
    with stored_login() as management:
        whose = find_agent(management, agent, environment)
        found = list(iter_permissions(management, whose, environment))
    if as_json:
        typer.echo(ascii_json([raw for _, raw in found]))
    elif not found:
        typer.echo(f"{whose.told} may do nothing")
    else:
        print_table(_COLUMNS, (_row(permission) for permission, _ in found))


def _row(permission: Permission) -> tuple[str, ...]:
    return (
        visible(permission.action),
        permission.amount_told,
        permission.approval_told,
        visible(permission.id),
    )
