"""A key, printed so that it can be handed on and is not taken for anything else."""

from typing import Any

import typer
from pydantic import BaseModel, ConfigDict

from toolgate_cli.approvals.pages import ascii_json
from toolgate_cli.output import fail


class Key(BaseModel):
    """A key, as far as it is shown."""

    model_config = ConfigDict(frozen=True)

    id: str
    api_key: str

    def __repr__(self) -> str:
        return f"Key({self.id!r})"

    @property
    def is_whole(self) -> bool:
        """Whether it works, and is not only its beginning and end."""
        return self.api_key.isascii() and self.api_key.replace("_", "").isalnum()


def print_key(key: Key, told: str, raw: Any, *, as_json: bool) -> None:
    """Print a key alone on standard output, and what is to be said of it on standard error.

    Raises:
        typer.Exit: it is not shown whole.
    """
    if not key.is_whole:
        fail("the gateway shows keys whole to admins only; ask an admin")
    typer.echo(ascii_json(raw) if as_json else key.api_key)
    typer.echo(f"toolgate: {told}", err=True)
