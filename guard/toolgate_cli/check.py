"""``toolgate check``: show the gateway's decision on a call without making the call."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn

import typer

from toolgate._capture.jsontext import loads
from toolgate._files import PrivateFileError
from toolgate.action_name import valid_action
from toolgate.errors import ConfigurationError
from toolgate.settings import Settings, load_settings, masked
from toolgate_cli.client import ManagementError, SdkSurface, refuses_key
from toolgate_cli.credentials import StoredLogin
from toolgate_cli.options import AsJson
from toolgate_cli.output import ascii_json, fail, visible

#: what the gateway takes
_MAX_CONTEXT = 64 * 1024


def read_context(fields: Sequence[str], as_json: str | None) -> dict[str, Any] | None:
    """Return the context that was written, or None where none was.

    Args:
        fields: `NAME=VALUE` each.
        as_json: an object as JSON; `-` reads it from standard input.

    Raises:
        typer.Exit: it is none; one line says why.
    """
    if as_json is None and not fields:
        return None
    context = {} if as_json is None else _parse_object(as_json)
    for field in fields:
        name, value = read_field(field)
        if name in context:
            fail(f"the context says {name!r} twice")
        context[name] = value
    return context


def read_field(field: str) -> tuple[str, Any]:
    """Return the name and the value of a field that was written.

    A value that is JSON is what it says: a number, true, false, null, a list, an object, a text in quotes. Every other
    value is the text as it stands.

    Raises:
        typer.Exit: it is no field; one line says how to write one.
    """
    name, equals, text = field.partition("=")
    if not equals or not name:
        fail(
            f"{field[:80]!r} is no field of a context; write --context NAME=VALUE, such as --context amount=40"
        )
    try:
        return name, loads(text, exactly=True)
    except (ValueError, RecursionError):
        return name, text


def _parse_object(text: str) -> dict[str, Any]:
    written = _read_stdin() if text == "-" else text
    if len(written) > _MAX_CONTEXT:
        fail(f"--context-json has more than {_MAX_CONTEXT:,} characters")
    try:
        content = loads(written, exactly=True)
    except (ValueError, RecursionError) as error:
        fail(f"--context-json is no JSON that has one meaning: {error}")
    if not isinstance(content, dict):
        fail("--context-json is no object; write one, such as '{\"amount\": 40}'")
    return content


def _read_stdin() -> str:
    try:
        return sys.stdin.read(_MAX_CONTEXT + 1)
    except UnicodeError:
        fail("standard input is no text in UTF-8")


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
        fail(_failure_text(error, settings))
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


def _failure_text(error: ManagementError, settings: Settings) -> str:
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
