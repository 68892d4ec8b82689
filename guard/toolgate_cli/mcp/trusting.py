"""``toolgate mcp trust``: what a server's tools say differently than when they were trusted, and taking it for good."""

import json
from difflib import unified_diff
from typing import Annotated, Any

import typer

from toolgate.errors import ConfigurationError
from toolgate_cli.ask import confirm
from toolgate_cli.output import fail
from toolgate_cli.plugins import load_plugin
from toolgate_cli.visible import visible


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
            _show(tool, shown[tool])
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


def _show(tool: str, pin: Any) -> None:
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
