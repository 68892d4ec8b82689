"""Claude Code's settings files: adding and removing Toolgate's hooks, and finding settings that disable hooks.

`read_status` reports whether hooks check the tool calls in the current folder.
"""

import copy
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, Literal, TypeAlias

from toolgate_cli.hooks.files import SettingsFileError, read_settings
from toolgate_cli.hooks.status import Status, check_newer_version, may_exist, read_version

PROGRAM: Final = "claude-code"
#: oldest supported version of Claude Code; older versions run the tool if a hook fails
OLDEST: Final = "2.1.295"
#: newest version of Claude Code that the hooks were tested with
TESTED: Final = "2.1.330"

Scope: TypeAlias = Literal["user", "project", "local"]
#: scopes of Claude Code's settings files; settings of later scopes override settings of earlier scopes
SCOPES: Final[tuple[Scope, ...]] = ("user", "project", "local")

#: environment variable with the secret of `toolgate hook serve`; Claude Code's settings contain only its name
SECRET_VARIABLE: Final = "TOOLGATE_HOOK_SECRET"  # noqa: S105 - the name of a variable, not a secret
DEFAULT_PORT: Final = 8460
SERVER_PATH: Final = "/claude-code"
_HOST: Final = "127.0.0.1"

_CHECK_EVENT: Final = "PreToolUse"
#: Claude Code's events after a tool has run; for these, the hook only logs the outcome of the tool call
RECORD_EVENTS: Final = ("PostToolUse", "PostToolUseFailure")
#: Claude Code's events for which `toolgate hook serve` only writes log entries; `SessionEnd` is included, because the
#: server cannot detect the end of Claude Code's process
SERVER_EVENTS: Final = (*RECORD_EVENTS, "SessionEnd")
_RECORD_SECONDS: Final = 30
# Seconds by which Claude Code's time limit for the hook exceeds the hook's own time limit. The hook uses these seconds
# to deny the call with a reason.
_MARGIN_SECONDS: Final = 10

_DISABLING_IN_SETTINGS: Final = ("CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE")
_DISABLING_IN_ENVIRONMENT: Final = ("CLAUDE_CODE_RESTRICTED",)
#: Claude Code runs no hooks from its settings files if one of these environment variables has a true value
DISABLING_VARIABLES: Final = (*_DISABLING_IN_SETTINGS, *_DISABLING_IN_ENVIRONMENT)
_FALSE: Final = ("", "0", "false", "no", "off")
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY")

_INSTALL: Final = "toolgate hook install"


def settings_path(scope: Scope) -> Path:
    """Return the path of the settings file for a scope; `project` and `local` are files of the current folder."""
    if scope == "user":
        folder = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"
    return Path(".claude") / ("settings.local.json" if scope == "local" else "settings.json")


def is_shared(path: Path) -> bool:
    """Return whether a settings file is usually committed to a project's repository and used on other machines."""
    is_local = path.name in {"settings.local.json", "managed-settings.json"}
    is_managed = path.parent.name == "managed-settings.d"
    return not (is_local or is_managed or path.resolve() == settings_path("user").resolve())


def command_hook(command: str, options: Iterable[str]) -> dict[str, Any]:
    """Return the hook that starts a process for each tool call.

    Args:
        command: the command `toolgate`, by name or path.
        options: options of `toolgate hook claude-code`.
    """
    # With `args`, Claude Code starts the command without a shell. Therefore no shell profile can add text to the
    # output, and no option needs quoting.
    return {"type": "command", "command": command, "args": ["hook", PROGRAM, *options]}


def http_hook(port: int) -> dict[str, Any]:
    """Return the hook that sends each tool call to `toolgate hook serve`."""
    return {
        "type": "http",
        "url": server_url(port),
        "headers": {"Authorization": f"Bearer ${SECRET_VARIABLE}"},
        "allowedEnvVars": [SECRET_VARIABLE],
    }


def server_url(port: int) -> str:
    """Return the URL at which `toolgate hook serve` receives tool calls."""
    return f"http://{_HOST}:{port}{SERVER_PATH}"


def add_hooks(settings: dict[str, Any], hook: dict[str, Any], time_limit: float) -> dict[str, Any]:
    """Return a copy of the settings in which the hook runs for every tool call, without earlier Toolgate hooks.

    Args:
        settings: the current settings, which are not changed.
        hook: a hook that `command_hook` or `http_hook` has returned.
        time_limit: the hook's own time limit in seconds.

    Raises:
        SettingsFileError: the settings are malformed, or disable hooks.
    """
    if (name := find_disabling_setting(settings)) is not None:
        raise SettingsFileError(f"{name!r} disables all hooks in this file; remove it first")
    changed = remove_hooks(settings)
    hooks = changed.setdefault("hooks", {})
    # Without "block", Claude Code runs the tool when the hook fails.
    blocking = {"timeout": math.ceil(time_limit) + _MARGIN_SECONDS, "onFailure": "block"}
    for event in (_CHECK_EVENT, *(SERVER_EVENTS if hook["type"] == "http" else RECORD_EVENTS)):
        limits = blocking if event == _CHECK_EVENT else {"timeout": _RECORD_SECONDS}
        hooks.setdefault(event, []).append({"matcher": "*", "hooks": [{**hook, **limits}]})
    return changed


def remove_hooks(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the settings without Toolgate's hooks, and without groups that contained only these hooks.

    Raises:
        SettingsFileError: the settings are malformed.
    """
    changed = copy.deepcopy(settings)
    hooks = changed.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsFileError("'hooks' is not a JSON object; correct it, then try again")
    for event, groups in list(hooks.items()):
        if not isinstance(groups, list) or not all(map(_is_group, groups)):
            raise SettingsFileError(
                f"the hooks of {event!r} must be a list of groups with 'hooks'; correct them first"
            )
        kept = [group for group in map(_remove_from_group, groups) if group is not None]
        if kept or not groups:
            hooks[event] = kept
        else:
            del hooks[event]
    if not hooks and settings.get("hooks"):
        del changed["hooks"]
    return changed


def find_coverage(settings: dict[str, Any]) -> Literal["none", "partial", "full"]:
    """Return the coverage of tool calls by the Toolgate hooks in one settings file.

    `full`: every tool call is checked, and the tool is blocked if the hook fails. `partial`: there are Toolgate hooks,
    but at least one of these two conditions is not met. `none`: there are no Toolgate hooks.
    """
    hooks = settings.get("hooks")
    groups = hooks.get(_CHECK_EVENT) if isinstance(hooks, dict) else None
    installed = [
        (group.get("matcher", "*"), hook)
        for group in (groups if isinstance(groups, list) else [])
        if _is_group(group)
        for hook in group["hooks"]
        if _is_toolgate_hook(hook)
    ]
    if not installed:
        return "none"
    is_full = any(
        matcher in ("", "*") and "if" not in hook and hook.get("onFailure") == "block"
        for matcher, hook in installed
    )
    return "full" if is_full else "partial"


def find_disabling_setting(settings: Mapping[str, Any]) -> str | None:
    """Return the name of the setting or variable in one settings file that disables all hooks, or None."""
    if settings.get("disableAllHooks"):
        return "disableAllHooks"
    env = settings.get("env")
    return find_disabling_variable(env, _DISABLING_IN_SETTINGS) if isinstance(env, dict) else None


def find_effective_disabling(
    env: Mapping[str, Any], user: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]
) -> str | None:
    """Return the name of the setting or variable that disables all hooks in the current folder, or None.

    Args:
        env: the environment variables.
        user: the settings of the scope `user`; variables in their field `env` override the environment variables.
        settings: the settings of all scopes, in the order of `SCOPES`; the last `disableAllHooks` applies.
    """
    values = [each["disableAllHooks"] for each in settings if "disableAllHooks" in each]
    if values and values[-1]:
        return "disableAllHooks"
    user_env = user.get("env")
    effective = {**env, **(user_env if isinstance(user_env, dict) else {})}
    return find_disabling_variable(effective, _DISABLING_IN_SETTINGS) or find_disabling_variable(
        env, _DISABLING_IN_ENVIRONMENT
    )


def find_disabling_variable(env: Mapping[str, Any], names: Iterable[str] = DISABLING_VARIABLES) -> str | None:
    """Return the first of `names` whose value in `env` disables all hooks, or None."""
    return next((name for name in names if str(env.get(name, "")).strip().lower() not in _FALSE), None)


def find_proxy_variable(env: Mapping[str, Any]) -> str | None:
    """Return the name of the variable that makes Claude Code send requests to 127.0.0.1 through a proxy, or None."""
    # Claude Code may read either `no_proxy` or `NO_PROXY`, so if both are set, both must exclude this machine.
    exclusions = [
        str(env[name]).replace(",", " ").split() for name in ("no_proxy", "NO_PROXY") if env.get(name)
    ]
    if exclusions and all("*" in names or _HOST in names for names in exclusions):
        return None
    return next((each for name in _PROXY_VARIABLES for each in (name.lower(), name) if env.get(each)), None)


def _is_group(group: object) -> bool:
    return isinstance(group, dict) and isinstance(group.get("hooks"), list)


def _remove_from_group(group: dict[str, Any]) -> dict[str, Any] | None:
    others = [hook for hook in group["hooks"] if not _is_toolgate_hook(hook)]
    if len(others) == len(group["hooks"]):
        return group
    return {**group, "hooks": others} if others else None


def _is_toolgate_hook(hook: object) -> bool:
    if not isinstance(hook, dict):
        return False
    if hook.get("type") == "http":
        variables = hook.get("allowedEnvVars")
        return isinstance(variables, list) and SECRET_VARIABLE in variables
    if not isinstance(hook.get("command"), str):
        return False
    words = hook.get("args")
    name = PurePath(hook["command"].replace("\\", "/")).name.removesuffix(".exe")
    return name == "toolgate" and isinstance(words, list) and words[:2] == ["hook", PROGRAM]


def read_status(versions: Any) -> Status | None:
    """Return the status of Claude Code in the current folder, or None if it is neither installed nor configured.

    Args:
        versions: the module of the entry point `frameworks`; its functions `order` and `series` compare versions.
    """
    program = shutil.which("claude")
    paths = {str(path): path for scope in SCOPES if may_exist(path := settings_path(scope))}
    if program is None and not paths:
        return None
    version = None if program is None else read_version(program)
    try:
        settings = {name: read_settings(path) for name, path in paths.items()}
    except SettingsFileError as error:
        return Status(version, "unknown", str(error), _INSTALL)
    return _check_settings(version, settings) or _check_version(versions, version, program)


def _check_settings(version: str | None, settings: Mapping[str, dict[str, Any]]) -> Status | None:
    user = settings.get(str(settings_path("user")), {})
    if (name := find_effective_disabling(os.environ, user, list(settings.values()))) is not None:
        return Status(version, "disabled", f"{name!r} disables all hooks", f"remove or unset {name!r}")
    coverage = {path: find_coverage(each) for path, each in settings.items()}
    if "full" in coverage.values():
        return None
    partial = next((path for path, found in coverage.items() if found == "partial"), None)
    if partial is None:
        return Status(
            version, "no hooks", "no hook checks the tool calls of Claude Code in this folder", _INSTALL
        )
    description = f"the hook in {partial!r} does not check every tool, or does not block tools when it fails"
    return Status(version, "no hooks", description, _INSTALL)


def _check_version(versions: Any, version: str | None, program: str | None) -> Status:
    if program is None:
        return Status(
            None,
            "covered",
            (
                "the hook checks tool calls; the version of Claude Code is unknown, because claude is not on "
                "the PATH"
            ),
        )
    if version is None:
        return Status(None, "unknown", f"{program!r} --version prints no version", "check that command")
    if versions.order(version) < versions.order(OLDEST):
        description = f"a hook that fails can block the tool only with Claude Code {OLDEST} or later"
        return Status(version, "too old", description, "claude update")
    newer = check_newer_version(versions, version, TESTED, f"claude install {TESTED}")
    return newer or Status(version, "covered", "tool calls are checked before they run")
