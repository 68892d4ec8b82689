"""The tree of commands, one file each."""

from typing import Annotated

import typer

from toolgate_cli.admin import admin
from toolgate_cli.agents import agents
from toolgate_cli.approvals import approvals
from toolgate_cli.check import check
from toolgate_cli.config import config
from toolgate_cli.credentials import login, logout, whoami
from toolgate_cli.db import db
from toolgate_cli.demo import demo
from toolgate_cli.doctor import doctor
from toolgate_cli.frameworks import frameworks
from toolgate_cli.grants import grants
from toolgate_cli.hooks.commands import hook
from toolgate_cli.keys import keys
from toolgate_cli.logs import logs
from toolgate_cli.mcp import mcp, mcp_proxy
from toolgate_cli.outbox import outbox
from toolgate_cli.permissions import permissions
from toolgate_cli.serve import serve
from toolgate_cli.slack import slack
from toolgate_cli.webhooks import webhooks

app = typer.Typer(
    name="toolgate",
    help="The permission gateway and audit trail between AI agents and the things agents can break.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command()(serve)
app.command()(demo)
app.command()(login)
app.command()(logout)
app.command()(whoami)
app.command()(check)
app.command()(doctor)
app.command()(frameworks)
app.command()(mcp_proxy)
app.add_typer(agents)
app.add_typer(permissions)
app.add_typer(keys)
app.add_typer(logs)
app.add_typer(outbox)
app.add_typer(approvals)
app.add_typer(grants)
app.add_typer(webhooks)
app.add_typer(slack)
app.add_typer(mcp)
app.add_typer(hook)
app.add_typer(admin)
app.add_typer(config)
app.add_typer(db)


@app.callback(invoke_without_command=True)
def toolgate(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Answer the options that need no command."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("toolgate"))
        raise typer.Exit
