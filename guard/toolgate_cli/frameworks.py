"""``toolgate frameworks``: list the installed agent frameworks, and report those that no plugin guards."""

from typing import Annotated, Any, Final

import typer

from toolgate_cli.entry_points import load_plugin
from toolgate_cli.hooks import claude_code, opencode
from toolgate_cli.output import Column, fail, print_json, print_table, sanitize

_COLUMNS: Final = (
    Column("framework", no_wrap=True),
    Column("version", no_wrap=True),
    Column("plugin", no_wrap=True),
    Column("from", no_wrap=True),
    Column("tested up to", no_wrap=True),
    Column("", no_wrap=True),
)

#: by coding agent: the module whose `read_status` returns the status, and the oldest supported version or None
_CODING_AGENTS: Final = {
    claude_code.PROGRAM: (claude_code, claude_code.OLDEST),
    opencode.PROGRAM: (opencode, None),
}


def frameworks(
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A framework to ignore because it runs no tools here, such as crewai; repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the frameworks as JSON, in ASCII.")] = False,
) -> None:
    """List the agent frameworks of this environment, Claude Code and OpenCode; status 1 if one is unguarded.

    Reads the metadata of installed packages without importing them, Claude Code's settings for this folder, and
    OpenCode's plugins. Does not check whether your code uses the plugins of the frameworks.
    """
    plugin = load_plugin("frameworks", "cli")
    ignored = _parse_ignored(plugin, ignore or [])
    found = sorted((*plugin.survey(), *_find_coding_agents(plugin)), key=lambda one: str(one.framework))
    unguarded = [one for one in found if not one.guarded and one.framework not in ignored]
    if as_json:
        print_json([_as_dict(one, ignored) for one in found])
    else:
        _print(found, unguarded, ignored)
    if unguarded:
        raise typer.Exit(1)


def _find_coding_agents(plugin: Any) -> list[Any]:
    found = []
    for name, (module, oldest) in _CODING_AGENTS.items():
        if (status := module.read_status(plugin)) is not None:
            version, state, description, fix = status
            command = f"toolgate hook {name}"
            found.append(plugin.Found(name, version, state, description, fix, command, oldest, module.TESTED))
    return found


def _parse_ignored(plugin: Any, names: list[str]) -> set[str]:
    for name in names:
        if plugin.normal(name) not in {*plugin.KNOWN, *_CODING_AGENTS}:
            fail(f"--ignore: unknown framework {name!r}; to list the names, run: toolgate frameworks")
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
    typer.echo(_summarize(found, unguarded))


def _summarize(found: list[Any], unguarded: list[Any]) -> str:
    if not found:
        return "no known agent framework is installed here"
    if unguarded:
        return f"{len(unguarded)} of {len(found)} agent frameworks would run tools unguarded"
    guarded = sum(one.guarded for one in found)
    ignored = f", {len(found) - guarded} ignored" if guarded < len(found) else ""
    by = "plugins or hooks" if any(one.framework in _CODING_AGENTS for one in found) else "plugins"
    return f"{guarded} of {len(found)} agent frameworks can be guarded by {by}{ignored}"


def _row(one: Any, ignored: set[str]) -> tuple[str, ...]:
    state = "ignored" if one.framework in ignored and not one.guarded else one.state
    shown = (one.framework, one.version, one.plugin, one.oldest, one.tested)
    return (*(sanitize(each or "-") for each in shown), state)
