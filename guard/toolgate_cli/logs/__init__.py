"""``toolgate logs``: what agents did, as it happens and afterwards."""

import typer

from toolgate_cli.logs.export import export
from toolgate_cli.logs.read import search, tail

logs = typer.Typer(
    name="logs", help="Read what agents did: as it happens, afterwards, and as a file.", no_args_is_help=True
)
logs.command()(tail)
logs.command()(search)
logs.command()(export)
