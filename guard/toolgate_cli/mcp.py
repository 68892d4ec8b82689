"""``toolgate mcp-proxy`` and ``toolgate mcp trust``: the gateway in front of an MCP server."""

import json
import os
from collections.abc import Callable, Collection
from difflib import unified_diff
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any

import typer

from toolgate.errors import ConfigurationError
from toolgate.guard import Guard
from toolgate.settings import Settings, load_settings
from toolgate_cli.client import ManagementError, SdkSurface, read_answer
from toolgate_cli.entry_points import load_plugin
from toolgate_cli.output import fail, visible
from toolgate_cli.prompts import confirm

mcp = typer.Typer(name="mcp", help="Servers behind toolgate mcp-proxy.", no_args_is_help=True)


class OnHold(StrEnum):
    """What a held call does."""

    ELICIT = "elicit"
    WAIT = "wait"
    TELL = "tell"


def mcp_proxy(
    name: Annotated[
        str,
        typer.Option(
            help="The server's name here: its tool pay is the action NAME.pay, and it is pinned by it."
        ),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="What starts a server that speaks over stdio."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="The address of a server that speaks HTTP.")] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="The agent's id. Default: TOOLGATE_AGENT_ID.")
    ] = None,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(metavar="VARIABLE", help="A variable the started server is given; repeatable."),
    ] = None,
    header_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEADER=VARIABLE", help="A header of requests to --url, from a variable; repeatable."
        ),
    ] = None,
    tool_action: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL=ACTION", help="Another action for a tool; repeatable."),
    ] = None,
    on_hold: Annotated[
        OnHold, typer.Option(help="A held call: point the user to it, wait, or tell the model.")
    ] = OnHold.ELICIT,
    hold_timeout: Annotated[
        float, typer.Option(help="Seconds to wait for the person; 0 has no limit.")
    ] = 50.0,
    approval_page: Annotated[
        str | None, typer.Option(help="The page where people decide, with {approval_id} in its address.")
    ] = None,
    only_granted: Annotated[
        bool, typer.Option(help="Show only tools that the agent has a permission for.")
    ] = False,
    allow_sampling: Annotated[bool, typer.Option(help="Let the server ask the client's model.")] = False,
    allow_elicitation: Annotated[bool, typer.Option(help="Let the server ask the client's user.")] = False,
    allow_roots: Annotated[bool, typer.Option(help="Let the server see the client's folders.")] = False,
    start_timeout: Annotated[
        float, typer.Option(help="Seconds the server may take to answer for the first time.")
    ] = 60.0,
) -> None:
    """Put the gateway in front of an MCP server: every call of its tools is asked about, and recorded.

    An MCP client starts this in place of the server and speaks to it on standard input and output. Settings come from
    TOOLGATE_URL, TOOLGATE_API_KEY and TOOLGATE_AGENT_ID; the server sees none of them.
    """
    serve = load_plugin("mcp_proxy", "mcp")
    try:
        settings = load_settings(agent_id=agent)
        if settings.agent_id is None:
            fail("no agent is named; set TOOLGATE_AGENT_ID or write --agent ID, see: toolgate agents list")
        _check_settings(settings, settings.agent_id)
        why = serve(
            _place(command or [], url, pass_env or [], header_env or []),
            guard=Guard(agent_id=agent),
            name=name,
            tool_actions=_pairs("--tool-action", "TOOL=ACTION", tool_action or []),
            on_hold=on_hold.value,
            hold_timeout=hold_timeout or None,
            approval_page=approval_page,
            granted=_granted(settings, settings.agent_id) if only_granted else None,
            allowed=_allowed(sampling=allow_sampling, elicitation=allow_elicitation, roots=allow_roots),
            start_timeout=start_timeout,
        )
    except ConfigurationError as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if why is not None:
        fail(why)


def _place(command: list[str], url: str | None, pass_env: list[str], header_env: list[str]) -> Any:
    if bool(command) == (url is not None):
        fail("name one server: either --url ADDRESS, or its command after --")
    if url is None:
        if header_env:
            fail("--header-env is for a server at --url; a started one is given variables with --pass-env")
        return load_plugin("mcp_command", "mcp")(command, {each: _variable(each) for each in pass_env})
    if pass_env:
        fail("--pass-env is for a server that is started; one at --url is given headers with --header-env")
    headers = _pairs("--header-env", "HEADER=VARIABLE", header_env)
    return load_plugin("mcp_address", "mcp")(url, {each: _variable(it) for each, it in headers.items()})


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        fail(f"the variable {name!r} is to be passed on, and is not set")
    return value


def _pairs(option: str, form: str, given: list[str]) -> dict[str, str]:
    pairs = {}
    for each in given:
        left, equals, right = each.partition("=")
        if not (left and equals and right) or left in pairs:
            fail(f"{option} is {each!r}; write {form}, each {form.partition('=')[0].lower()} once")
        pairs[left] = right
    return pairs


def _allowed(**given: bool) -> list[str]:
    return [what for what, allowed in given.items() if allowed]


def _check_settings(settings: Settings, agent_id: str) -> None:
    """Refuse to start with a key that the gateway refuses; a gateway that does not answer may come back."""
    try:
        with SdkSurface(settings) as gateway:
            answer = gateway.permissions(agent_id)
    except ManagementError as error:
        typer.echo(f"toolgate: the settings could not be checked: {error}", err=True)
        return
    if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        try:
            read_answer(answer, "GET", "/sdk/permissions")
        except ManagementError as error:
            fail(f"the gateway at {settings.url!r} refuses these settings: {error}")


def _granted(settings: Settings, agent_id: str) -> Callable[[], Collection[str] | None]:
    def granted() -> Collection[str] | None:
        try:
            with SdkSurface(settings) as gateway:
                permissions = read_answer(gateway.permissions(agent_id), "GET", "/sdk/permissions")
            return {permission["action"] for permission in permissions}
        except (ManagementError, TypeError, KeyError):
            # Nobody can say: everything is shown, and every call is asked about all the same.
            return None

    return granted


@mcp.command()
def trust(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The server, as in toolgate mcp-proxy --name.")],
    tools: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL]...", help="Tools of it. Default: all that changed.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Show what tools of a server say differently than when they were trusted, and trust them in it.

    What they say is what the server listed last: to the proxy, when its client asked or called a tool.
    """
    pins = load_plugin("mcp_pins", "mcp")(name)
    try:
        shown = pins.read()
        _refuse_unknown(name, tools or (), shown)
        changed = sorted(tool for tool, pin in shown.items() if pin.changed and (not tools or tool in tools))
        if not changed:
            typer.echo(f"nothing changed: {len(shown)} tools of {visible(name)} are as they were trusted")
            return
        for tool in changed:
            _print_changes(tool, shown[tool])
        confirm(f"Trust {_counted(changed)} of {visible(name)} in what {_they(changed)} now?", yes=yes)
        pins.trust(changed, shown=shown)
    except ConfigurationError as error:
        fail(str(error))
    typer.echo(f"trusted: {', '.join(visible(tool) for tool in changed)}")


def _refuse_unknown(name: str, tools: Any, shown: dict[str, Any]) -> None:
    if not shown:
        fail(f"no server called {name!r} was ever seen by toolgate mcp-proxy --name; look at the name")
    for tool in tools:
        if tool not in shown:
            fail(f"the server {name!r} never listed a tool called {tool!r}")


def _print_changes(tool: str, pin: Any) -> None:
    typer.echo(f"{visible(tool)}")
    before, after = _lines(pin.was), _lines(pin.now)
    for number, line in enumerate(unified_diff(before, after, n=2, lineterm="")):
        # The first two name files, and there are none.
        if number > 1 and not line.startswith("@@"):
            typer.echo(f"  {line}")


def _lines(told: str) -> list[str]:
    """What a tool says, a line for each part; a text's own lines are lines, with everything in them to be seen."""
    lines: list[str] = []
    for part, value in sorted(json.loads(told).items()):
        if isinstance(value, str):
            first, *more = value.split("\n")
            lines += [f"{part}: {visible(first)}", *(f"{' ' * len(part)}  {visible(line)}" for line in more)]
        else:
            text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True)
            first, *more = text.split("\n")
            lines += [f"{part}: {first}", *(f"  {line}" for line in more)]
    return lines


def _counted(tools: list[str]) -> str:
    return "1 tool" if len(tools) == 1 else f"{len(tools)} tools"


def _they(tools: list[str]) -> str:
    return "it says" if len(tools) == 1 else "they say"
