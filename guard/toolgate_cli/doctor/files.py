"""Whether what Toolgate keeps on this machine is its owner's alone (decisions §9)."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from toolgate_cli.doctor.findings import Finding

_OTHERS = 0o077


def check_files() -> Iterator[Finding]:
    """Yield what is wrong with the rights of files, or that nothing is."""
    if os.name != "posix":
        yield Finding("files", "unknown", "this system's rights of files are not looked at")
        return
    wrong = [finding for folder in folders() for finding in _folder(folder)]
    wrong += [finding for path in _outbox() for finding in _one(path, "file", "600")]
    yield from wrong
    if not wrong:
        yield Finding("files", "ok", "what is kept here is its owner's alone")


def folders() -> list[Path]:
    """Return the folders in which logins, secrets, records and data are kept, those that there are."""
    from platformdirs import user_config_path, user_data_path, user_state_path

    ours = [path("toolgate", appauthor=False) for path in (user_config_path, user_data_path, user_state_path)]
    candidates = [*ours, Path.home() / ".config" / "toolgate"]
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def _outbox() -> list[Path]:
    # One that has a place of its own; the usual place is one of the folders.
    named = os.environ.get("TOOLGATE_OUTBOX")
    path = Path(named).expanduser() if named else None
    beside = (
        [] if path is None else [path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))]
    )
    return [each for each in beside if each.is_file()]


def _folder(folder: Path) -> Iterator[Finding]:
    try:
        yield from _one(folder, "folder", "700")
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                yield Finding(
                    "files", "wrong", f"{str(path)!r} is a symbolic link", "remove it, and put the file there"
                )
            elif path.is_file():
                yield from _one(path, "file", "600")
    except OSError as error:
        says = f"the folder {str(folder)!r} cannot be looked into: {error.strerror}"
        yield Finding("files", "wrong", says, "give it back to yourself, or remove it")


def _one(path: Path, kind: str, right: str) -> Iterator[Finding]:
    found = path.lstat()
    if found.st_uid != os.geteuid():
        yield Finding("files", "wrong", f"the {kind} {str(path)!r} belongs to another user", "remove it")
    elif found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        says = f"other users can use the {kind} {str(path)!r} (its mode is {mode:04o})"
        cure = f"chmod {right} {path}; if they may have read it, log in again or change what it holds"
        yield Finding("files", "wrong", says, cure)
