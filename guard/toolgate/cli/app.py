"""The tree of commands, one file each."""

from typing import Annotated

import typer

from toolgate.cli.admin import admin
from toolgate.cli.demo import demo
from toolgate.cli.serve import serve

app = typer.Typer(
    name="toolgate",
    help="The permission gateway and audit trail between AI agents and the things agents can break.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command()(serve)
app.command()(demo)
app.add_typer(admin)


@app.callback(invoke_without_command=True)
def toolgate(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Answer the options that need no command."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("toolgate"))
        raise typer.Exit
