"""Status of a coding agent in the current folder, for `toolgate frameworks`."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
_VERSION_SECONDS: Final = 10


class Status(NamedTuple):
    """Coverage: whether the gateway checks the tool calls of a coding agent in the current folder.

    Attributes:
        version: the coding agent's version, or None if its program is not on PATH or prints no version.
        state: the status in one or two words, such as `covered`.
        description: the status in one line.
        fix: the command or change that corrects the state, or None if no change is needed.
    """

    version: str | None
    state: str
    description: str
    fix: str | None = None


def read_version(program: str) -> str | None:
    """Return the version that a program prints, or None if it prints none."""
    try:
        done = subprocess.run(  # noqa: S603 - `program` is the path of the user's own program
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout) if done.returncode == 0 else None
    return None if found is None else found[0]


def may_exist(path: Path) -> bool:
    """Return whether a file exists, or may exist because an error prevents the check.

    After such an error, the caller tries to read the file, and reports the error.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def check_newer_version(versions: Any, version: str, tested: str, fix: str) -> Status | None:
    """Return the status of a version that is newer than the newest tested version, or None if it is not newer.

    Args:
        versions: the module of the entry point `frameworks`; its functions `order` and `series` compare versions.
        version: the installed version.
        tested: the newest tested version.
        fix: the command that installs the tested version.
    """
    if versions.order(version) <= versions.order(tested):
        return None
    if versions.series(version) == versions.series(tested):
        return Status(
            version,
            "untested",
            f"the version is newer than {tested}, the newest version with which Toolgate was tested",
        )
    return Status(
        version,
        "too new",
        (
            f"the version is newer than {tested}, the newest version with which Toolgate was tested: hooks may work "
            "differently"
        ),
        fix,
    )
