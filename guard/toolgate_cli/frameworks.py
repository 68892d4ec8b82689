"""``toolgate frameworks``: which agent frameworks are here, and which of them nothing guards."""

from typing import Annotated, Any, Final

import typer

from toolgate_cli.entry_points import load_plugin
from toolgate_cli.hooks.claude_code import OLDEST, TESTED
from toolgate_cli.hooks.claude_code import PROGRAM as NAME
from toolgate_cli.hooks.status import read_status
from toolgate_cli.output import Column, ascii_json, fail, print_table, visible

_COLUMNS: Final = (
    Column("framework", whole=True),
    Column("version", whole=True),
    Column("plugin", whole=True),
    Column("from", whole=True),
    Column("tested up to", whole=True),
    Column("", whole=True),
)


def frameworks(
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A framework that runs no tools here. May be given again."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON, in ASCII.")] = False,
) -> None:
    """List the agent frameworks of this environment and their plugins, and Claude Code; status 1 when one is unguarded.

    It reads what is installed and imports none of it, and looks into Claude Code's settings of this folder. A plugin
    guards the agents it is put into: whether your code does that is not seen here.
    """
    plugin = load_plugin("frameworks", "cli")
    ignored = _known(plugin, ignore or [])
    found = sorted((*plugin.survey(), *_claude_code(plugin)), key=lambda one: str(one.framework))
    unguarded = [one for one in found if not one.guarded and one.framework not in ignored]
    if as_json:
        typer.echo(ascii_json([_as_dict(one, ignored) for one in found]))
    else:
        _print(found, unguarded, ignored)
    if unguarded:
        raise typer.Exit(1)


def _claude_code(plugin: Any) -> list[Any]:
    here = read_status(plugin)
    if here is None:
        return []
    version, state, says, cure = here
    return [plugin.Found(NAME, version, state, says, cure, f"toolgate hook {NAME}", OLDEST, TESTED)]


def _known(plugin: Any, names: list[str]) -> set[str]:
    for name in names:
        if plugin.normal(name) not in {*plugin.KNOWN, NAME}:
            fail(f"--ignore {name!r} is no framework that is looked for; look at the name")
    return {plugin.normal(name) for name in names}


def _as_dict(one: Any, ignored: set[str]) -> dict[str, str | bool | None]:
    return {
        "framework": one.framework,
        "version": one.version,
        "plugin": one.plugin,
        "from": one.oldest,
        "tested": one.tested,
        "state": one.state,
        "guarded": one.guarded,
        "ignored": one.framework in ignored,
        "says": one.says,
        "cure": one.cure,
    }


def _print(found: list[Any], unguarded: list[Any], ignored: set[str]) -> None:
    if found:
        print_table(_COLUMNS, [_row(one, ignored) for one in found])
    for one in unguarded:
        typer.echo(f"{one.framework}: {one.says}")
        typer.echo(f"  → {one.cure}")
    for one in found:
        if one.state == "dependency":
            typer.echo(f"{one.framework}: {one.says}")
    typer.echo(_sum(found, unguarded))


def _sum(found: list[Any], unguarded: list[Any]) -> str:
    if not found:
        return "no agent framework that is known is installed here"
    if unguarded:
        return f"{len(unguarded)} of {len(found)} would run tools unguarded"
    guarded = sum(one.guarded for one in found)
    ignored = f", {len(found) - guarded} ignored" if guarded < len(found) else ""
    by = "a plugin or by hooks" if any(one.framework == NAME for one in found) else "a plugin"
    return f"{guarded} of {len(found)} can be guarded by {by}{ignored}"


def _row(one: Any, ignored: set[str]) -> tuple[str, ...]:
    state = "ignored" if one.framework in ignored and not one.guarded else one.state
    shown = (one.framework, one.version, one.plugin, one.oldest, one.tested)
    return (*(visible(each or "-") for each in shown), state)
