"""``toolgate check``: what the gateway would answer an agent, without anything coming of it."""

import os
from typing import Annotated, Any, Final, NoReturn

import typer

from toolgate._files import PrivateFileError
from toolgate.action_name import valid_action
from toolgate.errors import ConfigurationError
from toolgate.settings import Settings, load_settings, masked
from toolgate_cli.answers import ManagementError
from toolgate_cli.approvals.options import AsJson
from toolgate_cli.approvals.pages import ascii_json
from toolgate_cli.contexts import read_context
from toolgate_cli.output import fail
from toolgate_cli.sdk_surface import SdkSurface, refuses_key
from toolgate_cli.stored_login import StoredLogin
from toolgate_cli.visible import visible

#: exit codes beside 0 for allowed; 1 and 2 are errors
BLOCKED: Final = 3
HELD: Final = 4


def check(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action, such as stripe.refund.")],
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="The agent's id. Default: TOOLGATE_AGENT_ID.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A field of the context: JSON such as 40 or true, else a text; repeatable.",
        ),
    ] = None,
    context_json: Annotated[
        str | None, typer.Option(metavar="JSON", help="The context as an object; - reads standard input.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="The gateway's address. Default: TOOLGATE_URL, else where you are logged in."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask what the gateway would answer, as the agent would: nothing is done, nobody is asked, nothing is recorded.

    It needs the key of TOOLGATE_API_KEY. Exit codes: 0 allowed, 3 blocked, 4 held for a person, 1 an error, 2 wrong use.
    """
    written = read_context(context or (), context_json)
    try:
        settings = load_settings(url or os.environ.get("TOOLGATE_URL") or _where_logged_in(), agent_id=agent)
        question: dict[str, Any] = {"action": valid_action(action), "agent_id": settings.agent_id}
    except ConfigurationError as error:
        fail(
            f"{error} (a key is shown by: toolgate keys show)"
            if "TOOLGATE_API_KEY" in str(error)
            else str(error)
        )
    if settings.agent_id is None:
        fail("no agent is named; set TOOLGATE_AGENT_ID or write --agent ID, see: toolgate agents list")
    if written is not None:
        question["context"] = written
    try:
        with SdkSurface(settings) as gateway:
            answer = gateway.check(question)
    except ManagementError as error:
        fail(_told(error, settings))
    _end(answer, as_json=as_json)


def _end(answer: dict[str, Any], *, as_json: bool) -> NoReturn:
    outcome, code = "blocked", BLOCKED
    if answer["allowed"]:
        outcome, code = "allowed", 0
    elif answer["requires_approval"]:
        outcome, code = "held", HELD
    if as_json:
        typer.echo(ascii_json(answer))
    else:
        reason = answer.get("reason")
        typer.echo(f"{outcome}: {visible(reason)}" if reason else outcome)
    raise typer.Exit(code)


def _told(error: ManagementError, settings: Settings) -> str:
    if refuses_key(error):
        return (
            f"the gateway at {settings.url!r} refuses the API key {masked(settings.api_key)!r}: {error.detail}; "
            "set TOOLGATE_API_KEY to a valid one, see: toolgate keys show"
        )
    return str(error).replace(settings.api_key, masked(settings.api_key))


def _where_logged_in() -> str | None:
    try:
        login = StoredLogin.find()
    except PrivateFileError:
        return None
    return login.url if login else None
