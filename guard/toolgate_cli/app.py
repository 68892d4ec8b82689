"""Root command ``toolgate``, which contains the commands and command groups of all other modules."""

from typing import Annotated

import typer

from toolgate_cli.agents import agents
from toolgate_cli.approvals import approvals, grants
from toolgate_cli.budgets import budgets
from toolgate_cli.check import check
from toolgate_cli.credentials import login, logout, slack, whoami
from toolgate_cli.decisions import decisions
from toolgate_cli.demo import demo
from toolgate_cli.doctor import doctor
from toolgate_cli.evidence.commands import evidence
from toolgate_cli.frameworks import frameworks
from toolgate_cli.freezes import freeze, freezes, unfreeze
from toolgate_cli.gateway import admin, config, db, serve
from toolgate_cli.hooks.commands import hook
from toolgate_cli.keys import keys
from toolgate_cli.log.commands import log
from toolgate_cli.logs import logs
from toolgate_cli.mcp import mcp, mcp_proxy
from toolgate_cli.outbox import outbox
from toolgate_cli.permissions import permissions
from toolgate_cli.policy.commands import policy
from toolgate_cli.rules import rules
from toolgate_cli.verify.commands import verify
from toolgate_cli.webhooks import webhooks
from toolgate_cli.witness.commands import witness

app = typer.Typer(
    name="toolgate",
    help="Permission gateway and audit trail between AI agents and their tools.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
for command in (
    *(serve, demo, login, logout, whoami, check, doctor, frameworks, mcp_proxy, verify),
    *(decisions, evidence, freeze, freezes, unfreeze),
):
    app.command()(command)
for group in (
    *(
        agents,
        permissions,
        rules,
        budgets,
        policy,
        keys,
        logs,
        log,
        outbox,
        approvals,
        grants,
        webhooks,
        slack,
        mcp,
        hook,
        witness,
    ),
    *(admin, config, db),
):
    app.add_typer(group)


@app.callback(invoke_without_command=True)
def toolgate(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Handle the options that are given before a command or without one."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("toolgate"))
        raise typer.Exit
