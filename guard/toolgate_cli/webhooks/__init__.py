"""``toolgate webhooks``: for people who build a receiver of events."""

import typer

from toolgate_cli.webhooks.listening import listen

webhooks = typer.Typer(
    name="webhooks",
    help="For people who build a receiver of events.",
    no_args_is_help=True,
)


@webhooks.callback()
def _webhooks() -> None:
    """Keep the command's own name, although it is the only one so far."""


webhooks.command()(listen)
