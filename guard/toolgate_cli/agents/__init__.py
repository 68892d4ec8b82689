"""``toolgate agents``: who may act at all."""

import typer

from toolgate_cli.agents.changing import activate, create, deactivate, delete, update
from toolgate_cli.agents.listing import list_, show

agents = typer.Typer(
    name="agents",
    help="See who may act, and create, rename, switch off or remove agents. All of it uses your login.",
    no_args_is_help=True,
)
agents.command("list")(list_)
agents.command()(show)
agents.command()(create)
agents.command()(update)
agents.command()(deactivate)
agents.command()(activate)
agents.command()(delete)
