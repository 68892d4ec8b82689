"""``toolgate approvals``: list, show, watch and decide approval requests."""

import typer

from toolgate_cli.approvals.browse import list_, show, watch
from toolgate_cli.approvals.decide import approve, deny

approvals = typer.Typer(
    name="approvals",
    help="List and decide approval requests. Reading uses your login; a decision asks for your password.",
    no_args_is_help=True,
)
approvals.command("list")(list_)
approvals.command()(show)
approvals.command()(approve)
approvals.command()(deny)
approvals.command("reject", hidden=True)(deny)
approvals.command()(watch)
