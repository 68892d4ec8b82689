"""``toolgate hook install``, ``uninstall`` and ``serve``."""

import json
import os
import shutil
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import typer

from toolgate._files import PrivateFileError
from toolgate._settings import checked_url
from toolgate.errors import ConfigurationError
from toolgate_cli.entry_points import load_plugin
from toolgate_cli.hooks.agents import READING_ACTION, add_reading_actions, grant_reading, resolve_agents
from toolgate_cli.hooks.claude_code import (
    DEFAULT_PORT,
    OLDEST,
    SCOPES,
    add_hooks,
    command_hook,
    find_disabling_setting,
    find_disabling_variable,
    find_proxy_variable,
    http_hook,
    is_shared,
    remove_hooks,
    settings_path,
)
from toolgate_cli.hooks.files import PROGRAM as OPENCODE
from toolgate_cli.hooks.files import TESTED as OPENCODE_TESTED
from toolgate_cli.hooks.files import (
    SettingsFileError,
    check_loaded,
    format_settings,
    is_plugin,
    plugin_path,
    read_settings,
    remove_plugin,
    render_plugin,
    write_text,
)
from toolgate_cli.hooks.server import find_secret, secret_export, serve_hooks
from toolgate_cli.options import PasswordStdin
from toolgate_cli.output import fail

hook = typer.Typer(
    name="hook",
    help="Check the tool calls of coding agents (Claude Code, OpenCode) before they run.",
    no_args_is_help=True,
)

_COMMAND: Final = "toolgate"

Program: TypeAlias = Annotated[
    Literal["claude-code", "opencode"], typer.Option("--for", help="The coding agent.")
]
User: TypeAlias = Annotated[
    bool, typer.Option("--user", help="Use your user settings, which apply to all your projects.")
]
Local: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--local", help="Use this project's local settings, which are not committed to its repository."
    ),
]
File: TypeAlias = Annotated[Path | None, typer.Option(help="Use the settings file at this path.")]
Print: TypeAlias = Annotated[
    bool, typer.Option("--print", help="Print the new content of the file instead of writing the file.")
]
Http: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--http",
        help="Send tool calls to the server toolgate hook serve, instead of starting a process for each call.",
    ),
]
HttpPort: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help=f"The port of toolgate hook serve. Default: {DEFAULT_PORT}."),
]
ServePort: TypeAlias = Annotated[
    int, typer.Option(min=0, max=65535, help="The port to listen on; 0 chooses a free port.")
]
Url: TypeAlias = Annotated[str | None, typer.Option(help="The gateway's address. Default: TOOLGATE_URL.")]
Agent: TypeAlias = Annotated[
    str | None, typer.Option(metavar="AGENT", help="The agent's id or name. Default: TOOLGATE_AGENT_ID.")
]
Subagent: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=AGENT",
        help="Use another agent for one kind of subagent: NAME=AGENT, with the agent's id or name, such as "
        "Explore=reader-bot; repeatable.",
    ),
]
ToolAction: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOOL=ACTION",
        help="Use this action for a tool instead of its default action: TOOL=ACTION, such as "
        "Bash=shell.run; repeatable.",
    ),
]
OnHold: TypeAlias = Annotated[
    str,
    typer.Option(
        help="What happens with a call that needs approval: the hook waits for the decision, or notifies "
        "the model that the call is pending."
    ),
]
HoldTimeout: TypeAlias = Annotated[
    float, typer.Option(help="How many seconds the hook waits for a decision.")
]
AllowReading: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-reading",
        help=f"Use one action, {READING_ACTION}, for all tools that only read files, and create the agent's "
        "permission for it. Asks for your password.",
    ),
]


@dataclass(frozen=True, slots=True)
class _HookOptions:
    """Options of a hook. Agents' names are already replaced by ids, and defaults are read from the environment."""

    url: str | None
    agent: str | None
    subagents: list[str]
    tool_actions: list[str]
    on_hold: str
    hold_timeout: float

    @classmethod
    def read(
        cls,
        program: str,
        url: str | None,
        agent: str | None,
        subagents: Iterable[str] | None,
        tool_actions: Iterable[str] | None,
        on_hold: str,
        hold_timeout: float,
        *,
        allow_reading: bool,
    ) -> "_HookOptions":
        address = url or os.environ.get("TOOLGATE_URL")
        agent, resolved = resolve_agents(address, agent, subagents or ())
        return cls(
            address,
            agent or os.environ.get("TOOLGATE_AGENT_ID") or None,
            resolved,
            add_reading_actions(program, tool_actions or ()) if allow_reading else list(tool_actions or ()),
            on_hold,
            hold_timeout,
        )

    def as_words(self) -> list[str]:
        """Return the options as arguments of a command line.

        Raises:
            ConfigurationError: the gateway's address is invalid.
        """
        words = ["--on-hold", self.on_hold]
        words += ["--hold-timeout", f"{self.hold_timeout:g}"] if self.on_hold == "wait" else []
        words += ["--url", checked_url(self.url)] if self.url else []
        words += ["--agent", self.agent] if self.agent else []
        for option, values in (("--subagent", self.subagents), ("--tool-action", self.tool_actions)):
            words += [word for value in values for word in (option, value)]
        return words

    def grant_reading(self, *, password_stdin: bool) -> None:
        """Create a permission for `files.read` for the agents of the main session and of all subagents."""
        agents = [pair.partition("=")[2] for pair in self.subagents]
        grant_reading(
            self.url, [self.agent, *agents] if self.agent else agents, password_stdin=password_stdin
        )


@hook.command()
def install(
    program: Program = "claude-code",
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
    port: HttpPort = None,
    password_stdin: PasswordStdin = False,
    print_: Print = False,
) -> None:
    """Check Claude Code's tool calls before they run; a call that cannot be checked is blocked.

    The command changes this project's settings of Claude Code, .claude/settings.json. For OpenCode, the command writes
    the plugin .opencode/plugins/toolgate.js. The command writes no API key: set TOOLGATE_API_KEY in the environment of
    the coding agent. A file that is shared in a repository contains only the name toolgate, which the coding agent
    finds on the PATH. With --user or --local, the file contains the path of this installation.
    """
    path = _find_file(program, user=user, local=local, file=file)
    has_hook_options = bool(url or agent or subagent or tool_action or allow_reading)
    _check_http_options(program, http=http, port=port, has_hook_options=has_hook_options)
    shared = not user and is_shared(path)
    hooks = load_plugin("hooks", "cli")
    options = _HookOptions.read(
        program, url, agent, subagent, tool_action, on_hold, hold_timeout, allow_reading=allow_reading
    )
    try:
        words = options.as_words()
        hooks.options([program, *words])
        time_limit = hooks.limit_of(on_hold, hold_timeout)
        command = _COMMAND if shared else installed_command()
        if program == OPENCODE:
            if file is None:
                check_loaded(path, user=user)
            is_plugin(path)
            text = render_plugin(command, words, time_limit)
        else:
            added = http_hook(port or DEFAULT_PORT) if http else command_hook(command, words)
            text = _render_settings(path, added, time_limit, is_in_effect=file is None)
        if print_:
            typer.echo(text, nl=False)
            return
        # The settings file is written last, so that a failure of an earlier step leaves it unchanged.
        if http:
            find_secret()
        if allow_reading:
            options.grant_reading(password_stdin=password_stdin)
        write_text(path, text)
    except (SettingsFileError, PrivateFileError, ConfigurationError) as error:
        fail(f"{str(path)!r} was not changed: {error}")
    _print_next_steps(program, path, text, http=http)
    if not http and not allow_reading:
        typer.echo(
            "every tool needs a permission, also tools that only read files; to permit all tools that "
            "only read files with one permission, add --allow-reading"
        )
    if not http and shared:
        _print_shared_notes()


@hook.command()
def uninstall(
    program: Program = "claude-code",
    user: User = False,
    local: Local = False,
    file: File = None,
    print_: Print = False,
) -> None:
    """Remove Toolgate's hooks from Claude Code's settings, or its plugin from OpenCode, and nothing else."""
    path = _find_file(program, user=user, local=local, file=file)
    if print_ and program == OPENCODE:
        fail(
            "--print cannot be used with OpenCode, where this command only deletes the plugin file; remove --print"
        )
    try:
        if program == OPENCODE:
            is_removed = remove_plugin(path)
        else:
            settings = read_settings(path)
            changed = remove_hooks(settings)
            if print_:
                typer.echo(format_settings(changed), nl=False)
                return
            if is_removed := changed != settings:
                write_text(path, format_settings(changed))
    except SettingsFileError as error:
        fail(f"{str(path)!r} was not changed: {error}")
    typer.echo(f"{'uninstalled from' if is_removed else 'nothing is installed in'} {str(path)!r}")


@hook.command()
def serve(
    port: ServePort = DEFAULT_PORT,
    url: Url = None,
    agent: Agent = None,
    subagent: Subagent = None,
    tool_action: ToolAction = None,
    on_hold: OnHold = "wait",
    hold_timeout: HoldTimeout = 300.0,
    allow_reading: AllowReading = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Serve the hooks of `toolgate hook install --http` on this machine, until interrupted.

    Set TOOLGATE_API_KEY in the environment of this command. Claude Code does not need the key.
    """
    hooks = load_plugin("hooks", "cli")
    options = _HookOptions.read(
        "claude-code", url, agent, subagent, tool_action, on_hold, hold_timeout, allow_reading=allow_reading
    )
    try:
        # Each tool call is stored with a process id. If that process ends before the outcome of the call is reported,
        # the outcome is logged as unknown. An HTTP request does not contain the coding agent's process id, so the id of
        # this server process is used.
        parsed, secret = hooks.parse(["claude-code", *options.as_words()], os.getpid()), find_secret()
        if allow_reading:
            options.grant_reading(password_stdin=password_stdin)
    except (ConfigurationError, PrivateFileError) as error:
        fail(str(error))
    try:
        serve_hooks(parsed, secret, port)
    except OSError as error:
        fail(
            f"cannot listen on 127.0.0.1, port {port}: {error.strerror}; another program on this port "
            "could answer the hooks, so choose another --port for this command and for toolgate hook install "
            "--http"
        )


def installed_command() -> str:
    """Return the absolute path of the command `toolgate` of this installation.

    Raises:
        typer.Exit: the command is not installed.
    """
    # PATH is not searched, because it may contain another installation of Toolgate.
    found = shutil.which(_COMMAND, path=sysconfig.get_path("scripts"))
    if found is None:
        fail(
            "the command toolgate is not installed in this Python environment; install it with: "
            "pip install 'toolgate[cli]'"
        )
    return str(Path(found).absolute())


def _find_file(program: str, *, user: bool, local: bool, file: Path | None) -> Path:
    if sum((user, local, file is not None)) > 1:
        fail("--user, --local and --file exclude each other; use only one of them")
    if file is not None:
        return file
    if program == OPENCODE:
        if local:
            fail("--local works only with Claude Code; remove it")
        return plugin_path(user=user)
    return settings_path("user" if user else "local" if local else "project")


def _check_http_options(program: str, *, http: bool, port: int | None, has_hook_options: bool) -> None:
    if http and program == OPENCODE:
        fail("--http works only with Claude Code; remove it")
    if http and has_hook_options:
        fail(
            "with --http, pass the options for the gateway, agents, actions and --allow-reading to "
            "toolgate hook serve instead"
        )
    if port is not None and not http:
        fail("--port works only together with --http; add --http or remove --port")


def _render_settings(path: Path, added: dict[str, Any], time_limit: float, *, is_in_effect: bool) -> str:
    """Return the text of Claude Code's settings with a hook added.

    Args:
        path: the settings file.
        added: the hook to add.
        time_limit: the hook's own time limit in seconds.
        is_in_effect: whether Claude Code reads this file in the current folder. If so, the other settings files and
            the environment are searched for settings that disable hooks.

    Raises:
        SettingsFileError: the file cannot be used, or Claude Code would not send tool calls to the hook.
    """
    settings = read_settings(path)
    changed = add_hooks(settings, added, time_limit)
    if is_in_effect:
        _check_hooks_enabled(path)
    if added["type"] == "http":
        _check_no_proxy(path, settings)
    return format_settings(changed)


def _check_hooks_enabled(path: Path) -> None:
    if (variable := find_disabling_variable(os.environ)) is not None:
        raise SettingsFileError(f"{variable!r} in the environment disables all hooks; unset it first")
    for other in map(settings_path, SCOPES):
        if other != path and (name := find_disabling_setting(read_settings(other))) is not None:
            raise SettingsFileError(
                f"{name!r} in {str(other)!r} disables all hooks, also the hooks of this file; remove {name!r} first"
            )


def _check_no_proxy(path: Path, settings: dict[str, Any]) -> None:
    # A proxy on another machine would connect to its own 127.0.0.1, where another program could decide about tool
    # calls. The settings of every scope can set proxy variables, so the settings of all scopes are read.
    others = [read_settings(settings_path(scope)) for scope in SCOPES]
    environments = [env for each in (settings, *others) if isinstance(env := each.get("env"), dict)]
    for env in ({}, *environments):
        if (variable := find_proxy_variable({**os.environ, **env})) is not None:
            raise SettingsFileError(
                f"{variable!r} makes Claude Code send hooks to a proxy; add 127.0.0.1 to NO_PROXY in "
                f"{str(path)!r} and in the shell, or install without --http"
            )


def _print_next_steps(program: str, path: Path, text: str, *, http: bool) -> None:
    if program == OPENCODE:
        typer.echo(f"installed in {str(path)!r}; tested with OpenCode {OPENCODE_TESTED}")
        typer.echo(
            "set the environment variable TOOLGATE_API_KEY in the shell that starts opencode, and restart "
            "open sessions"
        )
        return
    typer.echo(f"installed in {str(path)!r}; requires Claude Code {OLDEST} or later")
    if http:
        typer.echo(
            "keep toolgate hook serve running, with the environment variable TOOLGATE_API_KEY set; while "
            "it does not run, every tool call is blocked"
        )
        typer.echo(f"before you start claude, run: {secret_export()}")
        typer.echo("restart open sessions")
    else:
        typer.echo(
            "set the environment variable TOOLGATE_API_KEY in the shell that starts claude, and restart "
            "open sessions"
        )
    if not json.loads(text).get("disableSkillShellExecution"):
        typer.echo(
            'shell commands in skills run without hooks; to prevent that, set "disableSkillShellExecution": true'
        )


def _print_shared_notes() -> None:
    typer.echo(
        "the file contains no paths of this machine, so you can commit it; every user needs toolgate on the PATH"
    )
    found = shutil.which(_COMMAND)
    if found is None:
        typer.echo(
            "toolgate is not on your PATH, so every tool call is blocked; add it to the PATH, or install "
            "with --local, which writes the full path of this installation",
            err=True,
        )
    elif Path(found).resolve() != Path(installed_command()).resolve():
        typer.echo(
            f"the hook will run another installation of toolgate, which is first on your PATH: {found}",
            err=True,
        )
