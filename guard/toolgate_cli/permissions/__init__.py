"""``toolgate permissions``: what each agent may do."""

import typer

from toolgate_cli.permissions.changing import change, grant, revoke
from toolgate_cli.permissions.listing import list_

permissions = typer.Typer(
    name="permissions",
    help="See what agents may do, and decide it. Reading uses your login; a change asks for your password.",
    no_args_is_help=True,
)
permissions.command("list")(list_)
permissions.command()(grant)
permissions.command()(change)
permissions.command()(revoke)
# The verbs of the other commands.
permissions.command("create", hidden=True)(grant)
permissions.command("update", hidden=True)(change)
permissions.command("delete", hidden=True)(revoke)
