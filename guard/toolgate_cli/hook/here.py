"""Whether Claude Code would ask the guard here: by the settings that count in this folder, and by its version."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate_cli.hook.claude_code import OLDEST, TESTED, guards, kept_off
from toolgate_cli.hook.settings_file import SettingsFileError, read_settings

NAME: Final = "claude-code"
#: from what counts least
PLACES: Final = ("user", "project", "local")
_INSTALL: Final = "toolgate hook install"
_SECONDS: Final = 10
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+", re.ASCII)


def settings_file(name: str) -> Path:
    """Return where Claude Code reads the settings of one of `PLACES` in this folder."""
    if name == "user":
        folder = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"
    return Path(".claude") / ("settings.local.json" if name == "local" else "settings.json")


def is_shared(path: Path, *, user: bool, local: bool) -> bool:
    """Return whether people on other machines may read a file: a project's settings are usually committed.

    Args:
        path: the file.
        user: it was chosen as the user's own.
        local: it was chosen as the one that is not committed.
    """
    # By their names, wherever they are: settings that are not committed, and those of an administrator.
    own_names = path.name in {"settings.local.json", "managed-settings.json"}
    is_managed = own_names or path.parent.name == "managed-settings.d"
    is_users = path.resolve() == settings_file("user").resolve()
    return not (user or local or is_managed or is_users)


class Standing(NamedTuple):
    """How it stands with Claude Code here.

    Attributes:
        version: its version; None where it is not on PATH, or does not say.
        state: in two words.
        says: that in a line.
        cure: what to do, where something is to be done.
    """

    version: str | None
    state: str
    says: str
    cure: str | None = None


def standing(versions: Any) -> Standing | None:
    """Look how it stands with Claude Code here; None where it is not on PATH, and there are no settings of its.

    Args:
        versions: what compares them: `order` and `series`.
    """
    program = shutil.which("claude")
    places = {str(path): path for name in PLACES if _is_there(path := settings_file(name))}
    if program is None and not places:
        return None
    version = None if program is None else _version_of(program)
    try:
        found = {name: read_settings(path) for name, path in places.items()}
    except SettingsFileError as error:
        return Standing(version, "unknown", str(error), _INSTALL)
    user = found.get(str(settings_file("user")), {})
    return _without_hooks(version, found, user) or _by_version(versions, version, program)


def _is_there(path: Path) -> bool:
    """Return whether the file may exist; if that is unknown, reading it raises the reason."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _without_hooks(
    version: str | None, found: Mapping[str, dict[str, Any]], user: dict[str, Any]
) -> Standing | None:
    if (off := kept_off(os.environ, user, list(found.values()))) is not None:
        return Standing(
            version, "switched off", f"{off!r} switches all hooks off", "take it out, or unset it"
        )
    guarding = {name: guards(settings) for name, settings in found.items()}
    if any(guarding.values()):
        return None
    open_ = next((name for name, whole in guarding.items() if whole is not None), None)
    if open_ is None:
        return Standing(version, "no hooks", "nothing here has it ask the guard before a tool call", _INSTALL)
    says = f"the guard's hook in {open_!r} does not ask about every tool, or lets tools run when it fails"
    return Standing(version, "no hooks", says, _INSTALL)


def _by_version(versions: Any, version: str | None, program: str | None) -> Standing:
    if program is None:
        return Standing(None, "covered", "it asks the guard; its version is not known: claude is not on PATH")
    if version is None:
        return Standing(None, "unknown", f"{program!r} --version says no version", "look at that command")
    if versions.order(version) < versions.order(OLDEST):
        says = f"{OLDEST} is the oldest whose hooks can block when they fail"
        return Standing(version, "too old", says, "claude update")
    if versions.order(version) <= versions.order(TESTED):
        return Standing(version, "covered", "it asks the guard before each tool call")
    if versions.series(version) == versions.series(TESTED):
        return Standing(version, "untested", f"newer than {TESTED}, up to which it is tested")
    says = f"tested up to {TESTED}: a later series may have changed the hooks"
    return Standing(version, "too new", says, f"claude install {TESTED}")


def _version_of(program: str) -> str | None:
    """What the program says of itself; it is started for nothing else."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own program, by its path
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout) if done.returncode == 0 else None
    return None if found is None else found[0]
