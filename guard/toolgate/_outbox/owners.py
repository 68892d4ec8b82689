"""Who owns the entries of an outbox, and whether they still live.

An owner holds a lock on a file of its own. The operating system lets go of it at any death, also by SIGKILL; nobody
has to be asked, and no process id can be mistaken for another's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from pathlib import Path
from typing import Final

__all__ = ["Owner", "claim", "enter", "lock_path"]

_TOKEN_BYTES: Final = 16

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # Not POSIX locks: those are let go when the process closes any descriptor of the file.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


class Owner:
    """A live owner's lock.

    Attributes:
        token: Its name.

    Args:
        path: Where its file is.
        token: Its name.
        descriptor: The file, locked.
        claimed: Whether it is a dead owner's, held for moments by whoever takes its place.
    """

    def __init__(self, path: Path, token: str, descriptor: int, *, claimed: bool = False) -> None:
        self.token = token
        self._claimed = claimed
        self._path = path
        self._descriptor: int | None = descriptor

    def __del__(self) -> None:
        self.let_go()

    def leave(self) -> None:
        """Let go, and remove the file: nothing is left that anybody could ask about."""
        if self._descriptor is not None:
            # On Windows a file that is open cannot be removed; the next owner does it then.
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            self.let_go()

    def let_go(self) -> None:
        """Let go, and leave the file: entries are left, for others to take over."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if self._claimed:
                # A child that was forked meanwhile has the file open too, and would hold it for its whole life.
                with contextlib.suppress(OSError):
                    _unlock(descriptor)
            with contextlib.suppress(OSError):
                os.close(descriptor)


def lock_path(outbox: Path, token: str) -> Path:
    """Where an owner's file is."""
    return outbox.with_name(outbox.name + "-owners") / f"{token}.lock"


def enter(outbox: Path) -> Owner:
    """Become an owner of a new name.

    Raises:
        OSError: The file cannot be made or locked.
    """
    token = secrets.token_hex(_TOKEN_BYTES)
    path = lock_path(outbox, token)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _lock(descriptor)
    except OSError:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return Owner(path, token, descriptor)


def claim(outbox: Path, token: str) -> Owner | None:
    """Take a dead owner's place; None while it lives, or while another takes it."""
    path = lock_path(outbox, token)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        _lock(descriptor)
    except OSError:
        os.close(descriptor)
        return None
    return Owner(path, token, descriptor, claimed=True)
