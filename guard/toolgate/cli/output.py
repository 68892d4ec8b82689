"""What every command prints alike."""

from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Print one line on standard error and end with status 1.

    Raises:
        typer.Exit: always.
    """
    typer.echo(f"toolgate: {message}", err=True)
    raise typer.Exit(1)
