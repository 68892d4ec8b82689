"""``toolgate webhooks``: manage webhooks, and receive their events during development."""

import typer

from toolgate_cli.webhooks.listen import listen
from toolgate_cli.webhooks.manage import create, delete, list_, show, update

webhooks = typer.Typer(
    name="webhooks",
    help="List, create, change and delete webhooks, and receive their events. Changes ask for your password.",
    no_args_is_help=True,
)
webhooks.command("list")(list_)
webhooks.command()(show)
webhooks.command()(create)
webhooks.command()(update)
webhooks.command()(delete)
webhooks.command()(listen)
