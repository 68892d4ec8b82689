"""``toolgate keys``: what agents prove by that they are yours."""

import typer

from toolgate_cli.keys.of_agents import create, delete, list_
from toolgate_cli.keys.of_organization import regenerate, show

keys = typer.Typer(
    name="keys",
    help="The organization's API keys, one for each environment, and keys that act only as one agent. What shows or "
    "changes one asks for your password; a key stands alone on standard output.",
    no_args_is_help=True,
)
keys.command()(show)
keys.command()(regenerate)
keys.command("list")(list_)
keys.command()(create)
keys.command()(delete)
