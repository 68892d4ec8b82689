"""A file that is its owner's alone: mode 0600 in a folder of mode 0700, written whole or not at all (decisions §9)."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from toolgate.cli.draft import draft

#: what others may do to a file
_OTHERS = 0o077

#: more than this is not ours
_LONGEST = 64 * 1024


class Cure(NamedTuple):
    """What helps when a file of ours is not as it must be.

    Attributes:
        anew: how its content comes back, once it is removed.
        exposed: what to do where others may have used it.
    """

    anew: str
    exposed: str


LOGIN = Cure(
    "log in again", "log in again, which replaces it, and change your password if others may have read it"
)


class PrivateFileError(Exception):
    """The file is not as it must be, or cannot be used; the message is one line that names the cure."""


def read_private(path: Path, *, longest: int = _LONGEST, cure: Cure = LOGIN) -> bytes | None:
    """Return a file's content, or None when there is no such file.

    Args:
        path: the file.
        longest: more bytes than this are none of ours.
        cure: what helps when it cannot be used.

    Raises:
        PrivateFileError: it is a link, somebody else's, or others may read it.
    """
    try:
        # What a link or a pipe leads to is not opened at all.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse_link(path, cure)
        raise PrivateFileError(f"cannot read {str(path)!r}: {error.strerror}") from error
    try:
        _refuse_others(path, os.fstat(descriptor), cure)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(longest + 1)
    except OSError as error:
        raise PrivateFileError(f"cannot read {str(path)!r}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(content) > longest:
        raise PrivateFileError(f"{str(path)!r} is none of ours: it is too long; remove it")
    return content


def write_private(path: Path, content: bytes, *, cure: Cure = LOGIN) -> None:
    """Put a file in place: whoever reads it sees the former or the new content, and only its owner sees any.

    Args:
        path: the file.
        content: all of it.
        cure: what helps when it cannot be put there.

    Raises:
        PrivateFileError: the place is a link or somebody else's, or cannot be written.
    """
    with _told(path, "write"):
        _prepare_folder(path.parent, cure)
        _refuse_link(path, cure)
        with draft(path) as file:
            file.write(content)


def remove_private(path: Path) -> None:
    """Remove a file; a missing one is fine.

    Raises:
        PrivateFileError: it cannot be removed.
    """
    with _told(path, "remove"):
        path.unlink(missing_ok=True)


def _prepare_folder(folder: Path, cure: Cure) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_link(folder, cure)
    found = folder.lstat()
    if os.name == "posix" and found.st_uid != os.geteuid():
        raise PrivateFileError(f"the folder {str(folder)!r} belongs to another user; remove it")
    if os.name == "posix" and found.st_mode & _OTHERS:
        folder.chmod(0o700)


def _refuse_link(path: Path, cure: Cure) -> None:
    if path.is_symlink():
        raise PrivateFileError(
            f"{str(path)!r} is a symbolic link, which may lead anywhere; remove it and {cure.anew}"
        )


def _refuse_others(path: Path, found: os.stat_result, cure: Cure) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PrivateFileError(f"{str(path)!r} is no ordinary file; remove it and {cure.anew}")
    if os.name != "posix":
        return
    if found.st_uid != os.geteuid():
        raise PrivateFileError(f"{str(path)!r} belongs to another user; remove it and {cure.anew}")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise PrivateFileError(
            f"{str(path)!r} can be used by other users of this machine (its mode is {mode:04o}); "
            f"{cure.exposed}"
        )


@contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PrivateFileError(f"cannot {what} {str(path)!r}: {error.strerror}") from error
