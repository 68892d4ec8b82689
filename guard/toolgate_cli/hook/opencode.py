"""The guard's plugin for OpenCode: a file of its own among those that OpenCode loads."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

from toolgate_cli.hook.settings_file import SettingsFileError, read_text

PROGRAM: Final = "opencode"
#: what the plugin was run with
TESTED: Final = "1.18.33"

_NAME: Final = Path("plugins") / "toolgate.js"
_TEMPLATE: Final = Path(__file__).with_name("opencode_plugin.js")
_CONFIGURED: Final = "const HOOK = "
# The plugin's time for a hook is over after the hook's own, which ends in an answer.
_MARGIN: Final = 10
_NOT_SET: Final = ("", "0", "false")


def place_of(*, user: bool) -> Path:
    """Return where OpenCode looks for the plugins of all projects, or of this one."""
    if not user:
        return Path(".opencode") / _NAME
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "opencode" / _NAME


def plugin_of(command: str, words: list[str], limit: float) -> str:
    """Return the plugin's text.

    Args:
        command: the command, by its path or as it is found on PATH.
        words: what follows `toolgate hook opencode`.
        limit: seconds after which the command has answered.
    """
    configured = {"command": command, "words": words, "seconds": math.ceil(limit) + _MARGIN}
    lines = _TEMPLATE.read_text("utf-8").splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith(_CONFIGURED))
    # JSON is JavaScript, once nothing in it ends a line.
    lines[at] = _CONFIGURED + json.dumps(configured)
    return "\n".join(lines) + "\n"


def tell_installed(path: Path) -> None:
    """Print what the plugin needs."""
    typer.echo(f"guarded: {str(path)!r}; tested with OpenCode {TESTED}")
    typer.echo("set TOOLGATE_API_KEY where opencode is started; restart open sessions")


def refuse_other(path: Path) -> None:
    """Refuse a place where something else than the guard's plugin is.

    Raises:
        SettingsFileError: something else is there, or it cannot be read.
    """
    _ours(path)


def uninstall_plugin(path: Path) -> None:
    """Remove the guard's plugin, if it is there.

    Raises:
        SettingsFileError: something else is there, or it cannot be removed.
    """
    if not _ours(path):
        typer.echo(f"nothing of the guard is in {str(path)!r}")
        return
    try:
        path.unlink()
    except OSError as error:
        raise SettingsFileError(f"cannot remove {str(path)!r}: {error.strerror}") from error
    typer.echo(f"no longer guarded by {str(path)!r}")


def refuse_where_idle(path: Path, *, user: bool) -> None:
    """Refuse where OpenCode would not load the plugin, or another of the guard's beside it.

    Raises:
        SettingsFileError: what it is, and what to do.
    """
    if (variable := _variable_off(os.environ, user=user)) is not None:
        raise SettingsFileError(f"with {variable!r} OpenCode loads no such plugin; unset it first")
    other = place_of(user=not user)
    if other.resolve() != path.resolve() and _ours(other):
        raise SettingsFileError(
            f"{str(other)!r} guards here already, and two would ask about each call twice; uninstall it first"
        )


def _variable_off(env: Mapping[str, str], *, user: bool) -> str | None:
    names = ("OPENCODE_PURE", *(() if user else ("OPENCODE_DISABLE_PROJECT_CONFIG",)))
    return next((name for name in names if env.get(name, "").strip().lower() not in _NOT_SET), None)


def _ours(path: Path) -> bool:
    """Whether the guard's plugin is there, and nothing else."""
    found = read_text(path)
    if not found.strip():
        return False
    if found.splitlines()[0] != _TEMPLATE.read_text("utf-8").splitlines()[0]:
        raise SettingsFileError(f"{str(path)!r} was not written by toolgate; move it first")
    return True
