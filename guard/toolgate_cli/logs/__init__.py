"""``toolgate logs``: search, follow and export the activity log."""

import typer

from toolgate_cli.logs.export import export
from toolgate_cli.logs.read import search, tail

logs = typer.Typer(name="logs", help="Search, follow and export the log of tool calls.", no_args_is_help=True)
logs.command()(tail)
logs.command()(search)
logs.command()(export)
