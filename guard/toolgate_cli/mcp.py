"""``toolgate mcp-proxy`` and ``toolgate mcp trust``: check the tool calls of any MCP server."""

import json
import os
from collections.abc import Callable, Collection
from difflib import unified_diff
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any

import typer

from toolgate._guard import Guard
from toolgate._settings import Settings, load_settings
from toolgate.errors import ConfigurationError
from toolgate_cli.client import GatewayClient, GatewayError
from toolgate_cli.entry_points import load_plugin
from toolgate_cli.options import Yes
from toolgate_cli.output import confirm, fail, print_note, sanitize

_PERMISSIONS_PATH = "/sdk/permissions"

mcp = typer.Typer(name="mcp", help="Manage MCP servers behind toolgate mcp-proxy.", no_args_is_help=True)


class OnHold(StrEnum):
    """Behavior of the proxy for a call that needs approval.

    `pause` points the client's user to the approval request, `wait` waits for the decision, `notify_model` lets the
    model read that the call is pending, and `raise` fails the request. `elicit` and `tell` are deprecated names of
    `pause` and `notify_model`.
    """

    PAUSE = "pause"
    WAIT = "wait"
    RAISE = "raise"
    NOTIFY_MODEL = "notify_model"
    ELICIT = "elicit"
    TELL = "tell"

    @property
    def current(self) -> str:
        """Return this value, or the name that replaces it if it is a deprecated name."""
        return {"elicit": "pause", "tell": "notify_model"}.get(self.value, self.value)


def mcp_proxy(
    name: Annotated[
        str,
        typer.Option(
            help="A name for the MCP server. Actions begin with this name: the tool pay has the action "
            "NAME.pay. The proxy also stores the tools' descriptions under this name."
        ),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="The command that starts an MCP server on standard input and output; use it instead of --url.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="The address of an MCP server that is reached over HTTP; use it instead of a command."
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="The agent's id. Default: TOOLGATE_AGENT_ID.")
    ] = None,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VARIABLE",
            help="The name of an environment variable to pass to the server that the command starts; repeatable.",
        ),
    ] = None,
    header_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEADER=VARIABLE",
            help="Send a header to the server at --url, with the value of an environment variable: "
            "HEADER=VARIABLE, such as Authorization=MCP_TOKEN; repeatable.",
        ),
    ] = None,
    tool_action: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOL=ACTION",
            help="Use this action for a tool instead of its default action: TOOL=ACTION, such as "
            "pay=stripe.refund; repeatable.",
        ),
    ] = None,
    on_hold: Annotated[
        OnHold,
        typer.Option(
            help="What happens with a call that needs approval: the proxy shows the approval request to "
            "the client's user (pause), waits for the decision (wait), fails the request (raise), or notifies "
            "the model that the call is pending (notify_model)."
        ),
    ] = OnHold.PAUSE,
    hold_timeout: Annotated[
        float, typer.Option(help="How many seconds the proxy waits for a decision; 0 for no limit.")
    ] = 50.0,
    approval_page: Annotated[
        str | None,
        typer.Option(
            help="The address of the page on which people decide approval requests. In the address, "
            "{approval_id} stands for the request's id."
        ),
    ] = None,
    only_granted: Annotated[
        bool, typer.Option(help="List only tools for which the agent has a permission.")
    ] = False,
    allow_sampling: Annotated[
        bool, typer.Option(help="Allow the MCP server to use the client's model (sampling).")
    ] = False,
    allow_elicitation: Annotated[
        bool, typer.Option(help="Allow the MCP server to ask the client's user for input (elicitation).")
    ] = False,
    allow_roots: Annotated[
        bool, typer.Option(help="Allow the MCP server to see the client's folders (roots).")
    ] = False,
    start_timeout: Annotated[
        float, typer.Option(help="How many seconds the MCP server may take to start.")
    ] = 60.0,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve clients over HTTP at this address, at the path /mcp, instead of one client on standard input "
            "and output.",
        ),
    ] = None,
    token_issuer: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="With --listen: the issuer of the access tokens (JWT) that clients must send."
        ),
    ] = None,
    token_audience: Annotated[
        str | None,
        typer.Option(
            metavar="AUDIENCE",
            help="The audience of the access tokens, which identifies this proxy, such as its address.",
        ),
    ] = None,
    jwks: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE", help="The issuer's public keys (JSON Web Key Set): an address or a file."
        ),
    ] = None,
    authzen_mapping: Annotated[
        bool,
        typer.Option(
            "--authzen-mapping",
            help="Check every request, not only tool calls, as its AuthZEN mapping defines (COAZ-MCP). Needs access "
            "tokens and the package toolgate[policy].",
        ),
    ] = False,
) -> None:
    """Run a proxy in front of an MCP server that checks and logs every tool call.

    An MCP client starts it in place of the server, and uses its standard input and output. With --listen, clients
    connect over HTTP. Settings come from TOOLGATE_URL, TOOLGATE_API_KEY and TOOLGATE_AGENT_ID; the server receives none
    of them.
    """
    serve = load_plugin("mcp_proxy", "mcp")
    try:
        settings = load_settings(agent_id=agent)
        if settings.agent_id is None:
            fail(
                "no agent is given; set the environment variable TOOLGATE_AGENT_ID or add --agent ID; to "
                "list the ids, run: toolgate agents list"
            )
        _check_settings(settings)
        error = serve(
            _connect(command or [], url, pass_env or [], header_env or []),
            guard=Guard(agent_id=agent),
            name=name,
            tool_actions=_parse_pairs("--tool-action", "TOOL=ACTION", tool_action or []),
            on_hold=on_hold.current,
            hold_timeout=hold_timeout or None,
            approval_page=approval_page,
            granted=_permitted_actions(settings) if only_granted else None,
            allowed=[
                name
                for name, is_allowed in (
                    ("sampling", allow_sampling),
                    ("elicitation", allow_elicitation),
                    ("roots", allow_roots),
                )
                if is_allowed
            ],
            start_timeout=start_timeout,
            listen=listen,
            token_issuer=token_issuer,
            token_audience=token_audience,
            jwks=jwks,
            authzen_mapping=authzen_mapping,
        )
    except ConfigurationError as wrong:
        fail(str(wrong))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if error is not None:
        fail(error)


def _connect(command: list[str], url: str | None, pass_env: list[str], header_env: list[str]) -> Any:
    if bool(command) == (url is not None):
        fail(
            "give exactly one MCP server: either --url ADDRESS, or after -- the command that starts the server"
        )
    if url is None:
        if header_env:
            fail(
                "--header-env works only with --url; to pass a variable to a server that is started by a "
                "command, use --pass-env"
            )
        return load_plugin("mcp_command", "mcp")(command, {each: _variable(each) for each in pass_env})
    if pass_env:
        fail(
            "--pass-env works only with a server that is started by a command; to send a header to a "
            "server at --url, use --header-env"
        )
    headers = _parse_pairs("--header-env", "HEADER=VARIABLE", header_env)
    return load_plugin("mcp_address", "mcp")(
        url, {header: _variable(variable) for header, variable in headers.items()}
    )


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        fail(
            f"the environment variable {name!r} is not set; set the variable, or remove the option that contains "
            "its name"
        )
    return value


def _parse_pairs(option: str, form: str, given: list[str]) -> dict[str, str]:
    pairs = {}
    for each in given:
        left, equals, right = each.partition("=")
        if not (left and equals and right) or left in pairs:
            fail(
                f"invalid {option} {each!r}: write {form}, and give each {form.partition('=')[0].lower()} only once"
            )
        pairs[left] = right
    return pairs


def _fetch_permissions(settings: Settings) -> Any:
    with GatewayClient.for_agent(settings) as client:
        return client.get(_PERMISSIONS_PATH, {"agent_id": settings.agent_id})


def _check_settings(settings: Settings) -> None:
    """End the command if the gateway rejects the API key; if the gateway does not respond, only print a note."""
    try:
        _fetch_permissions(settings)
    except GatewayError as error:
        if error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            fail(f"the gateway at {settings.url!r} refuses these settings: {error}")
        if error.status is None:
            print_note(f"the settings could not be checked: {error}")


def _permitted_actions(settings: Settings) -> Callable[[], Collection[str] | None]:
    def fetch() -> Collection[str] | None:
        try:
            return {permission["action"] for permission in _fetch_permissions(settings)}
        except (GatewayError, TypeError, KeyError):
            # The permissions are unknown. The proxy then lists all tools, and still checks every call.
            return None

    return fetch


@mcp.command()
def trust(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The server's name, as given to toolgate mcp-proxy --name.")
    ],
    tools: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOOL]...", help="The names of the tools to trust. Default: all changed tools."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Show how descriptions of a server's tools have changed since they were trusted, and trust the new descriptions.

    The new descriptions are the latest that the server sent through the proxy.
    """
    pins = load_plugin("mcp_pins", "mcp")(name)
    try:
        shown = pins.read()
        if not shown:
            fail(
                f"no tool descriptions of a server {name!r} are stored; use the name that was given to "
                "toolgate mcp-proxy --name"
            )
        for tool in tools or ():
            if tool not in shown:
                fail(f"the server {name!r} has no tool {tool!r}")
        changed = sorted(tool for tool, pin in shown.items() if pin.changed and (not tools or tool in tools))
        if not changed:
            typer.echo(
                f"nothing changed: {len(shown)} tools of {sanitize(name)} have the descriptions that you "
                "already trust"
            )
            return
        for tool in changed:
            _print_changes(tool, shown[tool])
        count = "1 tool" if len(changed) == 1 else f"{len(changed)} tools"
        confirm(f"Trust the new descriptions of {count} of {sanitize(name)}?", yes=yes)
        pins.trust(changed, shown=shown)
    except ConfigurationError as error:
        fail(str(error))
    typer.echo(f"trusted: {', '.join(sanitize(tool) for tool in changed)}")


def _print_changes(tool: str, pin: Any) -> None:
    typer.echo(f"{sanitize(tool)}")
    before, after = _description_lines(pin.was), _description_lines(pin.now)
    for number, line in enumerate(unified_diff(before, after, n=2, lineterm="")):
        # The first two lines of a unified diff contain file names. They are omitted, because no files are compared.
        if number > 1 and not line.startswith("@@"):
            typer.echo(f"  {line}")


def _description_lines(description: str) -> list[str]:
    """Return a tool's JSON description as sanitized lines, one or more for each member."""
    lines: list[str] = []
    for part, value in sorted(json.loads(description).items()):
        if isinstance(value, str):
            first, *more = value.split("\n")
            lines += [
                f"{part}: {sanitize(first)}",
                *(f"{' ' * len(part)}  {sanitize(line)}" for line in more),
            ]
        else:
            first, *more = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True).split("\n")
            lines += [f"{part}: {first}", *(f"  {line}" for line in more)]
    return lines
