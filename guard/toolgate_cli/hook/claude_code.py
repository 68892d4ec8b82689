"""What stands in Claude Code's settings for the guard."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from toolgate_cli.hook.over_http import is_http_guard
from toolgate_cli.hook.settings_file import SettingsFileError

PROGRAM: Final = "claude-code"
#: before, a hook that fails lets the tool run
OLDEST: Final = "2.1.295"
TESTED: Final = "2.1.330"

#: hooks that only record: their failure changes nothing of what ran
RECORDING: Final = ("PostToolUse", "PostToolUseFailure")
_RECORD_SECONDS: Final = 30
# The agent's time for a hook is over after its own, which ends in an answer.
_MARGIN: Final = 10


# With one of these in its environment Claude Code runs no hook of settings files.
_OFF_IN_SETTINGS: Final = ("CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE")
#: those that do it from the `env` of the user's settings as well, and one that they cannot set
OFF: Final = (*_OFF_IN_SETTINGS, "CLAUDE_CODE_RESTRICTED")
_NOT_SET: Final = ("", "0", "false", "no", "off")


def switching_off(settings: dict[str, Any]) -> str | None:
    """Return what switches all hooks off in settings, if anything does."""
    if settings.get("disableAllHooks"):
        return "disableAllHooks"
    env = settings.get("env")
    return variable_off(env, _OFF_IN_SETTINGS) if isinstance(env, dict) else None


def kept_off(
    env: Mapping[str, Any], user: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]
) -> str | None:
    """Return what switches all hooks off once everything that counts here is weighed, if anything does.

    Args:
        env: the environment.
        user: the user's settings, whose `env` outweighs the environment.
        settings: all that are read, the last of which says `disableAllHooks` outweighs the others.
    """
    said = [each["disableAllHooks"] for each in settings if "disableAllHooks" in each]
    if said and said[-1]:
        return "disableAllHooks"
    own = user.get("env")
    outweighed = {**env, **(own if isinstance(own, dict) else {})}
    return variable_off(outweighed, _OFF_IN_SETTINGS) or variable_off(env, OFF[len(_OFF_IN_SETTINGS) :])


def variable_off(env: Mapping[str, Any], names: Iterable[str] = OFF) -> str | None:
    """Return the variable that switches all hooks off, if one does."""
    return next((name for name in names if str(env.get(name, "")).strip().lower() not in _NOT_SET), None)


def with_guard(settings: dict[str, Any], command: str, words: list[str], limit: float) -> dict[str, Any]:
    """Return settings with the guard's hooks in place of those there may be.

    Args:
        settings: as they are.
        command: the command, by its path or as it is found on PATH.
        words: what follows `toolgate hook claude-code`.
        limit: seconds after which the command has answered.

    Raises:
        SettingsFileError: they are none of Claude Code's, or switch hooks off.
    """
    # Without a shell: nothing of a profile can stand in the answer, and no name has to be quoted.
    hook = {"type": "command", "command": command, "args": ["hook", PROGRAM, *words]}
    return with_hooks(settings, hook, limit)


def with_hooks(
    settings: dict[str, Any], hook: dict[str, Any], limit: float, recording: Iterable[str] = RECORDING
) -> dict[str, Any]:
    """Return settings with one hook that is asked and, for the events after it, told.

    Args:
        settings: as they are.
        hook: what is asked, by a command or over HTTP.
        limit: seconds after which it has answered.
        recording: the events of which it is told.

    Raises:
        SettingsFileError: as `with_guard`.
    """
    if (found := switching_off(settings)) is not None:
        raise SettingsFileError(f"{found!r} switches all hooks off there; take it out first")
    changed = without_guard(settings)
    hooks = changed.setdefault("hooks", {})
    asking = {"timeout": math.ceil(limit) + _MARGIN, "onFailure": "block"}
    for event in ("PreToolUse", *recording):
        own = asking if event == "PreToolUse" else {"timeout": _RECORD_SECONDS}
        hooks.setdefault(event, []).append({"matcher": "*", "hooks": [{**hook, **own}]})
    return changed


def guards(settings: dict[str, Any]) -> bool | None:
    """Return whether the guard is asked about every tool, and stops what it cannot be asked about; None without it."""
    hooks = settings.get("hooks")
    groups = hooks.get("PreToolUse") if isinstance(hooks, dict) else None
    ours = [
        (group.get("matcher", "*"), hook)
        for group in (groups if isinstance(groups, list) else [])
        if _is_group(group)
        for hook in group["hooks"]
        if _is_ours(hook)
    ]
    if not ours:
        return None
    return any(
        matcher in ("", "*") and "if" not in hook and hook.get("onFailure") == "block"
        for matcher, hook in ours
    )


def without_guard(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the guard's hooks, and without what only they filled.

    Raises:
        SettingsFileError: they are none of Claude Code's.
    """
    changed = copy.deepcopy(settings)
    hooks = changed.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsFileError("'hooks' is no object there; put it right first")
    for event, groups in list(hooks.items()):
        if not isinstance(groups, list) or not all(map(_is_group, groups)):
            raise SettingsFileError(
                f"the hooks of {event!r} are not as Claude Code has them; put them right first"
            )
        kept = [group for group in map(_without_ours, groups) if group is not None]
        if kept or not groups:
            hooks[event] = kept
        else:
            del hooks[event]
    if not hooks and settings.get("hooks"):
        del changed["hooks"]
    return changed


def _is_group(group: object) -> bool:
    return isinstance(group, dict) and isinstance(group.get("hooks"), list)


def _without_ours(group: dict[str, Any]) -> dict[str, Any] | None:
    others = [hook for hook in group["hooks"] if not _is_ours(hook)]
    if len(others) == len(group["hooks"]):
        return group
    return {**group, "hooks": others} if others else None


def _is_ours(hook: object) -> bool:
    if is_http_guard(hook):
        return True
    if not isinstance(hook, dict) or not isinstance(hook.get("command"), str):
        return False
    words = hook.get("args")
    name = PurePath(hook["command"].replace("\\", "/")).name.removesuffix(".exe")
    return name == "toolgate" and isinstance(words, list) and words[:2] == ["hook", PROGRAM]
