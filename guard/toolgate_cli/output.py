"""What every command prints alike."""

import sys
from typing import NoReturn

import typer

from toolgate_cli.visible import visible


def show_progress(step: str) -> None:
    """Print what a command does now, to a person at a terminal; scripts and logs are not told."""
    if sys.stderr.isatty():
        typer.echo(f"{step} …", err=True)


def fail(message: str) -> NoReturn:
    """Print one line on standard error and end with status 1.

    Raises:
        typer.Exit: always.
    """
    # One line whatever is quoted in it: a message may carry what a gateway or a model library said.
    typer.echo(f"toolgate: {_one_line(message)}", err=True)
    raise typer.Exit(1)


def _one_line(message: str) -> str:
    # A backslash is printable, and stands in messages that are escaped already.
    return "".join(char if char == "\\" else visible(char) for char in message)
