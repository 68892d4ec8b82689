"""``toolgate hook install`` and ``uninstall``: the guard in a coding agent's settings."""

import os
import shutil
import sysconfig
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.cli.hook.claude_code import switching_off, variable_off, with_guard, without_guard
from toolgate.cli.hook.settings_file import SettingsFileError, read_settings, text_of, write_settings
from toolgate.cli.output import fail
from toolgate.cli.plugins import load_plugin
from toolgate.errors import ConfigurationError
from toolgate.settings import checked_url

hook = typer.Typer(
    name="hook",
    help="Coding agents (Claude Code) that ask before each tool call.",
    no_args_is_help=True,
)

User = Annotated[bool, typer.Option("--user", help="The settings of all your projects.")]
Local = Annotated[bool, typer.Option("--local", help="This project's settings that are not committed.")]
_ALL = ("user", "project", "local")
File = Annotated[Path | None, typer.Option(help="This settings file.")]
Print = Annotated[bool, typer.Option("--print", help="Print what the file would be, and write nothing.")]


@hook.command()
def install(
    user: User = False,
    local: Local = False,
    file: File = None,
    url: Annotated[str | None, typer.Option(help="The gateway's address. Default: TOOLGATE_URL.")] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="The agent's id. Default: TOOLGATE_AGENT_ID.")
    ] = None,
    subagent: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ID", help="Another agent's id for a kind of subagent; repeatable."),
    ] = None,
    tool_action: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL=ACTION", help="Another action for a tool; repeatable."),
    ] = None,
    on_hold: Annotated[str, typer.Option(help="A held call: wait, or tell the model.")] = "wait",
    hold_timeout: Annotated[float, typer.Option(help="Seconds to wait for the person.")] = 300.0,
    print_: Print = False,
) -> None:
    """Have Claude Code ask the gateway before each tool call, and stop the call if that fails.

    The settings of this project are changed, .claude/settings.json, and only what is the guard's in them. No key is
    written: set TOOLGATE_API_KEY where claude is started.
    """
    place = _place(user=user, local=local, file=file)
    words = ["--on-hold", on_hold, *(("--hold-timeout", f"{hold_timeout:g}") if on_hold == "wait" else ())]
    try:
        address = url or os.environ.get("TOOLGATE_URL")
        words += ["--url", checked_url(address)] if address else []
    except ConfigurationError as error:
        fail(str(error))
    agent_id = agent or os.environ.get("TOOLGATE_AGENT_ID")
    for option, values in (
        ("--agent", [agent_id] if agent_id else []),
        ("--subagent", subagent or []),
        ("--tool-action", tool_action or []),
    ):
        words += [word for value in values for word in (option, value)]
    hooks = load_plugin("hooks", "cli")
    try:
        hooks.options(["claude-code", *words])
        limit = hooks.limit_of(on_hold, hold_timeout)
        settings = with_guard(read_settings(place), command(), words, limit)
        if file is None:
            _refuse_where_off(place)
        _put(place, settings, only_print=print_)
    except (SettingsFileError, ConfigurationError) as error:
        fail(f"{str(place)!r} is left as it was: {error}")
    if not print_:
        typer.echo(f"guarded: {str(place)!r}; it needs Claude Code 2.1.295 or later")
        typer.echo(
            "set TOOLGATE_API_KEY where claude is started; sessions that are open have to be begun anew"
        )
        if not settings.get("disableSkillShellExecution"):
            typer.echo(
                'commands that stand in skills run without a hook; "disableSkillShellExecution": true in the '
                "settings has them not run"
            )


@hook.command()
def uninstall(user: User = False, local: Local = False, file: File = None, print_: Print = False) -> None:
    """Take the guard out of Claude Code's settings, and nothing else."""
    place = _place(user=user, local=local, file=file)
    try:
        settings = read_settings(place)
        changed = without_guard(settings)
        if changed == settings and not print_:
            typer.echo(f"nothing of the guard is in {str(place)!r}")
            return
        _put(place, changed, only_print=print_)
    except SettingsFileError as error:
        fail(f"{str(place)!r} is left as it was: {error}")
    if not print_:
        typer.echo(f"no longer guarded by {str(place)!r}")


def _place(*, user: bool, local: bool, file: Path | None) -> Path:
    if sum((user, local, file is not None)) > 1:
        fail("name one file: --user, --local or --file")
    if file is not None:
        return file
    if user:
        folder = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"
    return Path(".claude") / ("settings.local.json" if local else "settings.json")


def _refuse_where_off(place: Path) -> None:
    """Hooks that something else switches off, which counts here beside the settings that are written, guard nothing."""
    if (variable := variable_off(os.environ)) is not None:
        raise SettingsFileError(f"{variable!r} in the environment switches all hooks off; unset it first")
    for other in (_place(user=each == "user", local=each == "local", file=None) for each in _ALL):
        if other != place and (found := switching_off(read_settings(other))) is not None:
            raise SettingsFileError(
                f"{found!r} in {str(other)!r} switches all hooks off, of this file too; take it out first"
            )


def command() -> str:
    """Return the absolute path of this installation's command."""
    # Of this very installation: another one that is first in somebody's PATH may have other settings, or none.
    found = shutil.which("toolgate", path=sysconfig.get_path("scripts"))
    if found is None:
        fail(
            "the command toolgate is not installed beside this Python; install it with: pip install 'toolgate[cli]'"
        )
    return str(Path(found).absolute())


def _put(place: Path, settings: dict[str, Any], *, only_print: bool) -> None:
    if only_print:
        typer.echo(text_of(settings), nl=False)
    else:
        write_settings(place, settings)
