"""Arguments and options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer


class Environment(StrEnum):
    """An organization's two worlds (decisions §8)."""

    PRODUCTION = "production"
    TEST = "test"


class Status(StrEnum):
    """Where an approval stands (decisions §5), or anywhere."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    CONSUMED = "consumed"
    ALL = "all"


ApprovalId = Annotated[
    str, typer.Argument(metavar="ID", help="The approval's id, or a beginning that names it alone.")
]
InEnvironment = Annotated[Environment, typer.Option("--environment", help="The environment it belongs to.")]
Full = Annotated[bool, typer.Option("--full", help="Cut no value, however long.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print what the gateway says, as JSON in ASCII.")]
Note = Annotated[
    str | None, typer.Option(help="Why; kept with the decision, and told to the agent.", show_default=False)
]
PasswordStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from standard input, for scripts."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
