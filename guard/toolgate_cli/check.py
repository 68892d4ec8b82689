"""``toolgate check``: print the gateway's decision about a call, without making the call."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn

import typer

from toolgate._capture.jsontext import dumps, loads
from toolgate._files import PrivateFileError
from toolgate._options import valid_action
from toolgate._settings import Settings, load_settings, masked
from toolgate.errors import ConfigurationError
from toolgate_cli.client import GatewayClient, GatewayError, read_response
from toolgate_cli.credentials import StoredLogin
from toolgate_cli.options import AsJson, GatewayUrl
from toolgate_cli.output import fail, print_json, sanitize

#: exit code if the call is denied
DENIED: Final = 3
#: exit code if the call needs approval
NEEDS_APPROVAL: Final = 4

_PATH: Final = "/sdk/check"
#: maximum characters of `--context-json`; the gateway accepts a context of at most 64 KiB
_MAX_CONTEXT: Final = 64 * 1024


def check(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action, such as stripe.refund.")],
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="The agent's id. Default: TOOLGATE_AGENT_ID.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An argument of the call: NAME=VALUE, such as amount=40. A VALUE that is not valid JSON "
            "is sent as a string. Repeatable.",
        ),
    ] = None,
    context_json: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="All arguments of the call as one JSON object, such as '{\"amount\": 40}'; - reads it "
            "from standard input.",
        ),
    ] = None,
    url: GatewayUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print the decision about a call of an agent; no approval request and no log entry is created.

    If a rule decides about the call, or requires the approval, the output contains its id. Uses the key in
    TOOLGATE_API_KEY. Exit codes: 0 allowed, 3 denied, 4 approval required, 1 error, 2 wrong usage.
    """
    values = parse_context(context or (), context_json)
    try:
        settings = load_settings(url or os.environ.get("TOOLGATE_URL") or _login_url(), agent_id=agent)
        body: dict[str, Any] = {
            "action": valid_action(action),
            "agent_id": settings.agent_id,
            "dry_run": True,
        }
    except ConfigurationError as error:
        hint = " (to show the key, run: toolgate keys show)" if "TOOLGATE_API_KEY" in str(error) else ""
        fail(f"{error}{hint}")
    if settings.agent_id is None:
        fail(
            "no agent is given; set the environment variable TOOLGATE_AGENT_ID or add --agent ID; to list "
            "the ids, run: toolgate agents list"
        )
    if values is not None:
        body["context"] = values
    try:
        with GatewayClient.for_agent(settings) as client:
            response = client.send("POST", _PATH, dumps(body).encode("utf-8", "surrogatepass"))
            decision = _validate(read_response(response, "POST", _PATH), settings.url)
    except GatewayError as error:
        fail(_describe(error, settings))
    _exit(decision, response.headers.get("x-rule-id"), as_json=as_json)


def parse_context(fields: Sequence[str], as_json: str | None) -> dict[str, Any] | None:
    """Return the arguments of the call from the options `--context` and `--context-json`; None without these options.

    Args:
        fields: values of `--context`, each `NAME=VALUE`.
        as_json: value of `--context-json`; with `-`, the JSON is read from standard input.

    Raises:
        typer.Exit: an option is invalid.
    """
    if as_json is None and not fields:
        return None
    context = {} if as_json is None else _parse_object(as_json)
    for field in fields:
        name, value = parse_field(field)
        if name in context:
            fail(f"the argument {name!r} is given twice; give each name once")
        context[name] = value
    return context


def parse_field(field: str) -> tuple[str, Any]:
    """Return the name and the value of `NAME=VALUE`; a value that is not valid JSON is returned as a string.

    Raises:
        typer.Exit: the field does not have the form `NAME=VALUE`.
    """
    name, equals, text = field.partition("=")
    if not equals or not name:
        fail(f"invalid --context {field[:80]!r}: write NAME=VALUE, such as --context amount=40")
    try:
        return name, loads(text, exactly=True)
    except (ValueError, RecursionError):
        return name, text


def _parse_object(text: str) -> dict[str, Any]:
    try:
        content = sys.stdin.read(_MAX_CONTEXT + 1) if text == "-" else text
    except UnicodeError:
        fail("standard input is not UTF-8 text")
    if len(content) > _MAX_CONTEXT:
        fail(f"--context-json has more than {_MAX_CONTEXT:,} characters")
    try:
        value = loads(content, exactly=True)
    except (ValueError, RecursionError) as error:
        fail(f"--context-json is not valid JSON: {error}")
    if not isinstance(value, dict):
        fail("--context-json is not a JSON object; write, for example, '{\"amount\": 40}'")
    return value


def _validate(content: Any, url: str) -> dict[str, Any]:
    """Return the decision in a response; raise GatewayError if it is missing or its fields contradict each other."""
    if not isinstance(content, dict) or not (
        isinstance(content.get("allowed"), bool) and isinstance(content.get("requires_approval"), bool)
    ):
        raise GatewayError(
            f"the response of {url!r} is not a decision; check that this is a Toolgate gateway"
        )
    if content["allowed"] and (content["requires_approval"] or content.get("reason") is not None):
        raise GatewayError(
            f"the response of {url!r} is inconsistent: it allows the call, but also contains a condition or "
            "a reason; check that this is a Toolgate gateway"
        )
    return content


def _exit(decision: dict[str, Any], rule_id: str | None, *, as_json: bool) -> NoReturn:
    outcome, code = "denied", DENIED
    if decision["allowed"]:
        outcome, code = "allowed", 0
    elif decision["requires_approval"]:
        outcome, code = "approval required", NEEDS_APPROVAL
    if as_json:
        print_json(decision | ({"rule_id": rule_id} if rule_id else {}))
    else:
        reason = decision.get("reason")
        typer.echo(f"{outcome}: {sanitize(reason)}" if reason else outcome)
        if rule_id:
            typer.echo(f"rule: {sanitize(rule_id)}")
    raise typer.Exit(code)


def _describe(error: GatewayError, settings: Settings) -> str:
    if error.is_unauthorized:
        return (
            f"the gateway at {settings.url!r} refuses the API key {masked(settings.api_key)!r}: {error.detail}; "
            "set TOOLGATE_API_KEY to a valid key, which this command shows: toolgate keys show"
        )
    return str(error).replace(settings.api_key, masked(settings.api_key))


def _login_url() -> str | None:
    try:
        login = StoredLogin.load()
    except PrivateFileError:
        return None
    return login.url if login else None
