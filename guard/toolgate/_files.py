"""Files that are replaced atomically, and files that only their owner may read."""

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

_GROUP_AND_OTHERS = 0o077
_MAX_PRIVATE_BYTES = 64 * 1024


@contextmanager
def replace_file(
    target: Path,
    *,
    created: int = 0o600,
    mode: int | None = None,
    before_rename: Callable[[], object] = lambda: None,
) -> Iterator[BinaryIO]:
    """Write a temporary file, and rename it to `target` when the block ends without an error.

    The content is flushed to disk before the rename. On any error the temporary file is removed and
    `target` keeps its former content. A symbolic link at `target` is replaced, not followed.

    Args:
        target: Path of the finished file.
        created: Permission bits with which the file is created; the process's umask applies.
        mode: Exact permission bits to set after the creation, regardless of the umask; None keeps the bits of
            `created`.
        before_rename: Called after the content has been flushed to disk; an exception prevents the rename.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, created), "wb") as file:
            if mode is not None:
                temporary.chmod(mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class Hint(NamedTuple):
    """Advice at the end of error messages about a private file.

    Attributes:
        recreate: Step with which the user creates the file again after removing it, such as "log in again".
        exposed: Advice for a file that other users of the machine could read.
    """

    recreate: str
    exposed: str


LOGIN_HINT = Hint(
    "log in again",
    "log in again to replace the file, and change your password if others may have read the file",
)


class PrivateFileError(Exception):
    """A private file is unsafe or cannot be used; the message is one line that ends with the fix."""


def read_private(path: Path, *, max_bytes: int = _MAX_PRIVATE_BYTES, hint: Hint = LOGIN_HINT) -> bytes | None:
    """Return the content of a private file, or None if it does not exist.

    Raises:
        PrivateFileError: The file is a link, belongs to another user, is accessible to other users, or is longer than
            `max_bytes`.
    """
    try:
        # With O_NOFOLLOW, opening a symbolic link fails; with O_NONBLOCK, opening a named pipe does not block.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse_link(path, hint)
        raise PrivateFileError(f"cannot read {str(path)!r}: {error.strerror}") from error
    try:
        _refuse_shared_file(path, os.fstat(descriptor), hint)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise PrivateFileError(f"cannot read {str(path)!r}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise PrivateFileError(
            f"{str(path)!r} is not a file of Toolgate, because it is longer than {max_bytes} bytes; remove it"
        )
    return content


def write_private(path: Path, content: bytes, *, hint: Hint = LOGIN_HINT) -> None:
    """Create or replace a file atomically, with mode 0600; its folder gets mode 0700, and is created if missing.

    Raises:
        PrivateFileError: The path is a link, the folder belongs to another user, or writing failed.
    """
    with _os_errors_named(path, "write"):
        _prepare_folder(path.parent, hint)
        _refuse_link(path, hint)
        with replace_file(path) as file:
            file.write(content)


def remove_private(path: Path) -> None:
    """Remove a file; it is not an error if the file does not exist.

    Raises:
        PrivateFileError: The file cannot be removed.
    """
    with _os_errors_named(path, "remove"):
        path.unlink(missing_ok=True)


def _prepare_folder(folder: Path, hint: Hint) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_link(folder, hint)
    found = folder.lstat()
    if os.name == "posix" and found.st_uid != os.geteuid():
        raise PrivateFileError(f"the folder {str(folder)!r} belongs to another user; remove it")
    if os.name == "posix" and found.st_mode & _GROUP_AND_OTHERS:
        folder.chmod(0o700)


def _refuse_link(path: Path, hint: Hint) -> None:
    if path.is_symlink():
        raise PrivateFileError(
            f"{str(path)!r} is a symbolic link, which Toolgate does not follow; remove it and {hint.recreate}"
        )


def _refuse_shared_file(path: Path, found: os.stat_result, hint: Hint) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PrivateFileError(f"{str(path)!r} is not a regular file; remove it and {hint.recreate}")
    if os.name != "posix":
        return
    if found.st_uid != os.geteuid():
        raise PrivateFileError(f"{str(path)!r} belongs to another user; remove it and {hint.recreate}")
    if found.st_mode & _GROUP_AND_OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise PrivateFileError(
            f"{str(path)!r} can be used by other users of this machine (its mode is {mode:04o}); "
            f"{hint.exposed}"
        )


@contextmanager
def _os_errors_named(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PrivateFileError(f"cannot {verb} {str(path)!r}: {error.strerror}") from error
