"""Options that commands of several groups share."""

from enum import StrEnum
from typing import Annotated

import typer


class Environment(StrEnum):
    """Environment of an organization; each has its own agents, permissions, keys and log entries."""

    PRODUCTION = "production"
    TEST = "test"


EnvironmentOption = Annotated[Environment, typer.Option("--environment", help="The environment to use.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the gateway's response as JSON, in ASCII.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, in ASCII.")]
Full = Annotated[bool, typer.Option("--full", help="Print long values completely.")]
GatewayUrl = Annotated[
    str | None,
    typer.Option(
        "--url", help="The gateway's address. Default: TOOLGATE_URL, else the address of your login."
    ),
]
PollInterval = Annotated[
    float, typer.Option("--interval", min=0.2, max=3600, help="Seconds between two requests to the gateway.")
]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, for scripts.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
