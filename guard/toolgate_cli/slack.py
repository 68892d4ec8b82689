"""``toolgate slack``: say who you are in Slack, so that you can decide there."""

from contextlib import suppress
from typing import Annotated

import typer

from toolgate_cli.client import Management, ManagementError
from toolgate_cli.credentials import StoredLogin
from toolgate_cli.options import PasswordStdin
from toolgate_cli.output import fail, visible
from toolgate_cli.prompts import ask_password

slack = typer.Typer(name="slack", help="Decide in Slack: link your account.", no_args_is_help=True)

PATH = "/api/slack/link-codes"


# Otherwise the only command would become the group itself.
@slack.callback()
def _group() -> None:
    """Decide in Slack: link your account."""


@slack.command()
def link(
    webhook: Annotated[
        str | None,
        typer.Option(help="Id of a webhook of the Slack app. Required where several apps are connected."),
    ] = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Print a code that links your Slack account to yours here. It asks for your password, as a decision does.

    The Slack user who enters the code in that app within ten minutes decides as you.
    """
    login = StoredLogin.required()
    question = f"Password of {visible(login.email)} to link your Slack account"
    password = ask_password(question, from_stdin=password_stdin)
    try:
        with Management.login(login.url, login.email, password) as management:
            answer = management.post(PATH, None if webhook is None else {"webhook_id": webhook})
            with suppress(ManagementError):
                management.log_out()
    except ManagementError as error:
        fail(f"no code was made: {error.detail or error}")
    code = answer.get("code") if isinstance(answer, dict) else None
    if not isinstance(code, str):
        fail(f"no code was made: the gateway answered POST {PATH!r} with something else")
    typer.echo(f"type this in Slack within ten minutes:  /toolgate link {visible(code)}")
