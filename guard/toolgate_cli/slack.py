"""``toolgate slack link``: link the user's Slack account, so that the user can decide approval requests in Slack."""

from typing import Annotated, Final

import typer

from toolgate_cli.credentials import password_session
from toolgate_cli.options import PasswordStdin
from toolgate_cli.output import fail, sanitize

_PATH: Final = "/api/slack/link-codes"

slack = typer.Typer(name="slack", no_args_is_help=True)


# Without a callback, Typer would replace a group that contains one command by that command.
@slack.callback()
def _slack() -> None:
    """Link your Slack account, to decide approval requests there."""


@slack.command()
def link(
    webhook: Annotated[
        str | None,
        typer.Option(help="Id of a webhook of the Slack app. Required if several apps are connected."),
    ] = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Print a code that links your Slack account to this account. Asks for your password.

    The Slack user who enters the code within ten minutes decides approval requests in your name.
    """
    with password_session(
        "link your Slack account", password_stdin=password_stdin, refusal="no code was created"
    ) as client:
        content = client.post(_PATH, None if webhook is None else {"webhook_id": webhook})
    code = content.get("code") if isinstance(content, dict) else None
    if not isinstance(code, str):
        fail(f"invalid response to POST {_PATH!r}: it has no code")
    typer.echo(f"type this in Slack within ten minutes:  /toolgate link {sanitize(code)}")
