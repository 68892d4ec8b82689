"""``toolgate hook install`` and ``uninstall``: the guard in a coding agent's settings."""

import json
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from toolgate._files import PrivateFileError
from toolgate.errors import ConfigurationError
from toolgate_cli.account import PasswordStdin
from toolgate_cli.hook.agents import agent_ids
from toolgate_cli.hook.claude_code import (
    OLDEST,
    switching_off,
    variable_off,
    with_guard,
    with_hooks,
    without_guard,
)
from toolgate_cli.hook.here import PLACES, is_shared, settings_file
from toolgate_cli.hook.opencode import PROGRAM as OPENCODE
from toolgate_cli.hook.opencode import (
    place_of,
    plugin_of,
    refuse_other,
    refuse_where_idle,
    tell_installed,
    uninstall_plugin,
)
from toolgate_cli.hook.options import (
    Agent,
    HoldTimeout,
    OnHold,
    Subagent,
    ToolAction,
    Url,
    named_agents,
    named_gateway,
    words_of,
)
from toolgate_cli.hook.over_http import PORT, TOLD, http_hook, proxied
from toolgate_cli.hook.reading import AllowReading, permit_reading, with_reading_actions
from toolgate_cli.hook.secret import export_line, find_secret
from toolgate_cli.hook.serve import serve
from toolgate_cli.hook.settings_file import (
    SettingsFileError,
    put_text,
    read_settings,
    text_of,
    write_settings,
)
from toolgate_cli.output import fail
from toolgate_cli.plugins import load_plugin

hook = typer.Typer(
    name="hook",
    help="Coding agents (Claude Code, OpenCode) that ask before each tool call.",
    no_args_is_help=True,
)
hook.command()(serve)

NAME: Final = "toolgate"

For = Annotated[Literal["claude-code", "opencode"], typer.Option("--for", help="Which coding agent.")]
User = Annotated[bool, typer.Option("--user", help="The settings of all your projects.")]
Local = Annotated[bool, typer.Option("--local", help="This project's settings that are not committed.")]
File = Annotated[Path | None, typer.Option(help="This settings file.")]
Http = Annotated[
    bool, typer.Option("--http", help="Ask the server that toolgate hook serve is: no process per call.")
]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help=f"Its port. Default: {PORT}.")]
Print = Annotated[bool, typer.Option("--print", help="Print what the file would be, and write nothing.")]


@hook.command()
def install(
    for_: For = "claude-code",
    user: User = False,
    local: Local = False,
    file: File = None,
    url: Url = None,
    agent: Agent = None,
    subagent: Subagent = None,
    tool_action: ToolAction = None,
    on_hold: OnHold = "wait",
    hold_timeout: HoldTimeout = 300.0,
    allow_reading: AllowReading = False,
    http: Http = False,
    port: Port = None,
    password_stdin: PasswordStdin = False,
    print_: Print = False,
) -> None:
    """Have Claude Code ask the gateway before each tool call, and stop the call if that fails.

    The settings of this project are changed, .claude/settings.json, and only what is the guard's in them; OpenCode gets
    a plugin, .opencode/plugins/toolgate.js. No key is written: set TOOLGATE_API_KEY where the agent is started. A file
    that is shared names the command as it is found on PATH; with --user or --local it names this installation.
    """
    place = _place(for_, user=user, local=local, file=file)
    _refuse_mixed(
        for_, http=http, port=port, own=bool(url or agent or subagent or tool_action or allow_reading)
    )
    shared = is_shared(place, user=user, local=local)
    if allow_reading:
        tool_action = with_reading_actions(for_, tool_action)
    hooks = load_plugin("hooks", "cli")
    agent, subagent = agent_ids(url, agent, subagent)
    try:
        words = words_of(url, agent, subagent, tool_action, on_hold, hold_timeout)
        hooks.options([for_, *words])
        limit = hooks.limit_of(on_hold, hold_timeout)
        if for_ == OPENCODE:
            if file is None:
                refuse_where_idle(place, user=user)
            refuse_other(place)
            text = plugin_of(command_for(shared=shared), words, limit)
        else:
            asked = http_hook(port or PORT) if http else None
            text = _settings(place, words, limit, http=asked, in_effect=file is None, shared=shared)
        if print_:
            typer.echo(text, nl=False)
            return
        # What may still be refused, before anything is written.
        if http:
            find_secret()
        if allow_reading:
            permit_reading(named_gateway(url), named_agents(agent, subagent), password_stdin=password_stdin)
        put_text(place, text)
    except (SettingsFileError, PrivateFileError, ConfigurationError) as error:
        fail(f"{str(place)!r} is left as it was: {error}")
    if for_ == OPENCODE:
        tell_installed(place)
    else:
        _tell_installed(place, text, http=http)
    if not http:
        _tell_shared(shared=shared, allow_reading=allow_reading)


def _settings(
    place: Path,
    words: list[str],
    limit: float,
    *,
    http: dict[str, Any] | None,
    in_effect: bool,
    shared: bool,
) -> str:
    """Return the text of Claude Code's settings with the guard in them.

    Args:
        place: the file that they are to replace.
        words: what follows `toolgate hook claude-code`.
        limit: seconds after which the hook has answered.
        http: the hook that asks a server; None has the command asked.
        in_effect: whether Claude Code reads this file here, so that other settings may switch its hooks off.
        shared: whether people on other machines may read the file.

    Raises:
        SettingsFileError: the file cannot be used, or its hooks would not ask the guard.
    """
    found = read_settings(place)
    if http is not None:
        settings = with_hooks(found, http, limit, TOLD)
    else:
        settings = with_guard(found, command_for(shared=shared), words, limit)
    if in_effect:
        _refuse_where_off(place)
    if http is not None:
        _refuse_where_astray(place, found)
    return text_of(settings)


def _tell_shared(*, shared: bool, allow_reading: bool) -> None:
    if not allow_reading:
        typer.echo("every tool asks, those that only read too: --allow-reading permits these together")
    if not shared:
        return
    typer.echo(
        "the file names no path of this machine: it can be committed, and needs toolgate on everybody's PATH"
    )
    found = shutil.which(NAME)
    if found is None:
        typer.echo(
            "toolgate is not on this PATH: every tool is blocked until it is; or install with --local, which names "
            "this installation",
            err=True,
        )
    elif Path(found).resolve() != Path(command()).resolve():
        typer.echo(f"toolgate on this PATH is another installation: {found}", err=True)


def _refuse_mixed(for_: str, *, http: bool, port: int | None, own: bool) -> None:
    if http and for_ == OPENCODE:
        fail("--http is for Claude Code")
    if http and own:
        fail(
            "with --http the gateway, agents and actions are told to: toolgate hook serve, --allow-reading too"
        )
    if port is not None and not http:
        fail("--port is for --http")


def _tell_installed(place: Path, text: str, *, http: bool) -> None:
    typer.echo(f"guarded: {str(place)!r}; it needs Claude Code {OLDEST} or later")
    if http:
        typer.echo(
            "keep this running, with TOOLGATE_API_KEY: toolgate hook serve; until it does, every tool is blocked"
        )
        typer.echo(f"where claude is started: {export_line()}")
        typer.echo("sessions that are open have to be begun anew")
    else:
        typer.echo(
            "set TOOLGATE_API_KEY where claude is started; sessions that are open have to be begun anew"
        )
    if not json.loads(text).get("disableSkillShellExecution"):
        typer.echo(
            'commands that stand in skills run without a hook; "disableSkillShellExecution": true in the '
            "settings has them not run"
        )


@hook.command()
def uninstall(
    for_: For = "claude-code",
    user: User = False,
    local: Local = False,
    file: File = None,
    print_: Print = False,
) -> None:
    """Take the guard out of Claude Code's settings, or its plugin away from OpenCode, and nothing else."""
    place = _place(for_, user=user, local=local, file=file)
    if print_ and for_ == OPENCODE:
        fail("there is nothing to print: the plugin is a file of its own")
    try:
        if for_ == OPENCODE:
            uninstall_plugin(place)
            return
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


def _place(for_: str = "claude-code", *, user: bool, local: bool, file: Path | None) -> Path:
    if sum((user, local, file is not None)) > 1:
        fail("name one file: --user, --local or --file")
    if file is not None:
        return file
    if for_ == OPENCODE:
        if local:
            fail("--local is for Claude Code")
        return place_of(user=user)
    return settings_file("user" if user else "local" if local else "project")


def _refuse_where_off(place: Path) -> None:
    """Hooks that something else switches off, which counts here beside the settings that are written, guard nothing."""
    if (variable := variable_off(os.environ)) is not None:
        raise SettingsFileError(f"{variable!r} in the environment switches all hooks off; unset it first")
    for other in map(settings_file, PLACES):
        if other != place and (found := switching_off(read_settings(other))) is not None:
            raise SettingsFileError(
                f"{found!r} in {str(other)!r} switches all hooks off, of this file too; take it out first"
            )


def _refuse_where_astray(place: Path, settings: dict[str, Any]) -> None:
    """Questions that go to a proxy are answered by whoever listens on its machine."""
    others = [read_settings(settings_file(each)) for each in PLACES]
    own = [env for each in (settings, *others) if isinstance(env := each.get("env"), dict)]
    for env in ({}, *own):
        if (variable := proxied({**os.environ, **env})) is not None:
            raise SettingsFileError(
                f"{variable!r} has Claude Code ask a proxy; add 127.0.0.1 to NO_PROXY, for {str(place)!r} "
                "as for the shell, or install it without --http"
            )


def command_for(*, shared: bool) -> str:
    """Return the command that a file names: without a path where other machines may read the file."""
    return NAME if shared else command()


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
