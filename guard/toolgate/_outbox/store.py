"""SQLite files that store log entries: their format, locks and errors.

Each process creates a file of its own and holds the lock of this file until it ends. The operating system releases the
lock even if the process was killed. If another process can acquire the lock, the creator of the file has ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from toolgate._outbox import Busy, OutboxFault
from toolgate._settings import Place

__all__ = [
    "INTENT",
    "PARKED",
    "READY",
    "FileLock",
    "Row",
    "Target",
    "connect",
    "create_file",
    "delete_file",
    "explain",
    "folder_totals",
    "lock_path",
    "open_file",
    "outbox_files",
    "read_target",
    "transaction",
    "write_schema",
]

#: state of an intent: an entry that was stored before the tool runs and has no outcome yet
INTENT: Final = 0
#: state of an entry that is queued to be sent
READY: Final = 1
#: state of an entry that the gateway has rejected permanently
PARKED: Final = 2

_VERSION: Final = 2
_OTHERS: Final = 0o077
_TOKEN_BYTES: Final = 16
_PRIMARY_CODE: Final = 0xFF

_SCHEMA: Final = """
BEGIN;
CREATE TABLE target (url TEXT NOT NULL, fingerprint TEXT NOT NULL, environment TEXT NOT NULL, organization TEXT);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, state INTEGER NOT NULL, old INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL, body TEXT NOT NULL, reason TEXT
);
CREATE INDEX entries_ready ON entries (old, id) WHERE state = 1;
-- A row counts 200 bytes beside its body.
CREATE TABLE totals (rows INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN
    UPDATE totals SET rows = rows + 1, bytes = bytes + new.bytes + 200;
END;
CREATE TRIGGER entries_changed AFTER UPDATE OF bytes ON entries WHEN new.bytes <> old.bytes BEGIN
    UPDATE totals SET bytes = bytes + new.bytes - old.bytes;
END;
CREATE TRIGGER entries_removed AFTER DELETE ON entries BEGIN
    UPDATE totals SET rows = rows - 1, bytes = bytes - old.bytes - 200;
END;
PRAGMA user_version = 2;
"""

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # `flock` is used instead of a POSIX lock (`fcntl.lockf`), which the process would lose as soon as it closes any
        # descriptor of the file.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@dataclass(frozen=True, slots=True)
class Target:
    """Receiver of the entries in a file: the gateway, and the organization and environment of the API key.

    Attributes:
        url: Address of the gateway.
        fingerprint: Digest of the API key.
        environment: `production` or `test`.
        organization: Id of the organization, or None as long as no response of the gateway has contained it.
    """

    url: str
    fingerprint: str
    environment: str
    organization: str | None = None

    def may_send(self, other: Target) -> bool:
        """Return whether a process whose guard has this target may send the entries in a file with the target `other`.

        Gateway, organization and environment must be the same. If the organization of `other` is None, the gateway and
        the API key must be the same.
        """
        if self.url != other.url:
            return False
        if other.organization is None:
            return self.fingerprint == other.fingerprint
        return (self.organization, self.environment) == (other.organization, other.environment)


@dataclass(frozen=True, slots=True)
class Row:
    """Queued log entry, as it is stored in an outbox file.

    Attributes:
        id: Row id.
        key: Idempotency-Key.
        body: JSON text of the entry.
    """

    id: int
    key: str
    body: str


class FileLock:
    """Exclusive lock on a lock file, held until `release` is called or the process ends.

    Args:
        path: The lock file, which is created if it does not exist.

    Raises:
        OSError: The file cannot be opened, or the lock is held by another process or by another object of this process.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        self._process = os.getpid()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            _lock(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path) -> FileLock | None:
        """Acquire the lock without waiting, and return it; return None if it cannot be acquired now."""
        try:
            return cls(path)
        except OSError:
            return None

    def release(self) -> None:
        """Release the lock. A forked child only closes its descriptor of the lock file; the parent keeps the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):
            if self._process == os.getpid():
                # Closing the descriptor is not enough. If native code has forked the process, the child has the lock
                # file open as well, and the lock would not be released.
                _unlock(descriptor)
        with contextlib.suppress(OSError):
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def lock_path(file: Path) -> Path:
    """Return the path of the lock file that belongs to an outbox file."""
    return file.with_suffix(".lock")


def outbox_files(folder: Path) -> list[Path]:
    """Return the outbox files in a folder, in a stable order.

    Raises:
        OutboxFault: The folder cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".db")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(folder, error) from error


def create_file(folder: Path, target: Target, place: Place) -> tuple[Path, FileLock, sqlite3.Connection]:
    """Create, lock and open an empty outbox file in a folder.

    Raises:
        OutboxFault: The folder cannot be used.
        sqlite3.Error: The file cannot be written.
    """
    try:
        for each in (folder.parent, folder) if place.own_folder else (folder,):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            if place.own_folder and os.name == "posix" and each.stat().st_mode & _OTHERS:
                each.chmod(0o700)
        file = folder / f"{secrets.token_hex(_TOKEN_BYTES)}.db"
        # The lock is acquired before the file is created. Otherwise another process could acquire the lock and take
        # over the new file.
        lock = FileLock(lock_path(file))
        # SQLite creates its other files, such as the write-ahead log, with the same permissions as this file.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        if place.full_sync and os.name == "posix":
            # SQLite does not sync these folders. Without `fsync`, the new file could be missing after a power loss.
            for each in (folder.parent, folder):
                descriptor = os.open(each, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
    except OSError as error:
        raise _unusable(folder, error) from error
    connection = None
    try:
        connection = connect(file, full_sync=place.full_sync)
        write_schema(connection, target)
    except BaseException:
        if connection is not None:
            connection.close()
        delete_file(file, lock)
        raise
    return file, lock, connection


def write_schema(connection: sqlite3.Connection, target: Target) -> None:
    """Create the tables in an empty file, and store the target of its entries."""
    # SQLite writes whole pages, although most writes change only a few hundred bytes. With 2 KiB per page, half of the
    # default size, a write takes a third less time.
    connection.execute("PRAGMA page_size = 2048")
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.executescript(_SCHEMA)
    connection.execute("INSERT INTO target VALUES (?, ?, ?, ?)", astuple(target))
    connection.execute("COMMIT")


def connect(file: Path | None, *, full_sync: bool = False, timeout: float = 0.0) -> sqlite3.Connection:
    """Open an existing file, or a database in memory.

    Args:
        file: The file, or None for memory.
        full_sync: Whether each commit waits until the data is on the disk.
        timeout: Maximum seconds that a statement waits while another connection is writing.
    """
    connection = sqlite3.connect(
        ":memory:" if file is None else f"{file.as_uri()}?mode=rw",
        uri=file is not None,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=32,
    )
    connection.execute(f"PRAGMA synchronous = {'FULL' if full_sync else 'NORMAL'}")
    # Automatic checkpoints are disabled, because they would delay the thread that writes. The sender's thread runs
    # checkpoints instead.
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
    return connection


@contextlib.contextmanager
def open_file(file: Path, *, version: int = _VERSION) -> Iterator[sqlite3.Connection | None]:
    """Open an existing outbox file for a `with` block; yield None if another process has not finished creating it.

    Raises:
        Busy: Another process is writing to the file.
        OutboxFault: The file is not a readable outbox file of this user.
    """
    try:
        found = file.lstat()
        if not stat.S_ISREG(found.st_mode) or (os.name == "posix" and found.st_uid != os.geteuid()):
            raise OutboxFault(
                f"the outbox file {str(file)!r} is not a regular file of this user",
                "set TOOLGATE_OUTBOX to a folder that belongs to this user and contains no symbolic links",
            )
        with contextlib.closing(connect(file, full_sync=True, timeout=1.0)) as connection:
            (actual,) = connection.execute("PRAGMA user_version").fetchone()
            if actual not in {0, version}:
                raise OutboxFault(
                    f"the outbox file {str(file)!r} was written by another version of toolgate (file format "
                    f"{actual})",
                    "use the other version of toolgate, or set TOOLGATE_OUTBOX to another folder",
                )
            yield connection if actual else None
    except sqlite3.Error as error:
        raise explain(error, file) from error
    except OSError as error:
        raise OutboxFault(
            f"the outbox file {str(file)!r} cannot be read: {error.strerror}",
            "make the file readable for this user",
        ) from error


def read_target(connection: sqlite3.Connection) -> Target:
    """Return the target of the entries in an outbox file that is open."""
    return Target(
        *connection.execute("SELECT url, fingerprint, environment, organization FROM target").fetchone()
    )


def folder_totals(folder: Path, own: Path | None) -> tuple[int, int]:
    """Return the number of entries, and the number of their bytes, in all outbox files of a folder except `own`."""
    rows = size = 0
    for file in outbox_files(folder):
        # A file that is being deleted, or that cannot be read, is not counted.
        with contextlib.suppress(Busy, OutboxFault):
            if file != own:
                with open_file(file) as connection:
                    if connection is not None:
                        found = connection.execute("SELECT rows, bytes FROM totals").fetchone()
                        rows, size = rows + found[0], size + found[1]
    return rows, size


def delete_file(file: Path, lock: FileLock) -> None:
    """Delete an outbox file, the additional files of SQLite and the lock file, and release the lock."""
    for path in (
        file,
        file.with_name(f"{file.name}-wal"),
        file.with_name(f"{file.name}-shm"),
        lock_path(file),
    ):
        # On Windows, a file that is open cannot be deleted. The next process deletes it.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    lock.release()


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the statements of a `with` block in one transaction; if the block raises an error, roll it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _unusable(folder: Path, error: OSError) -> OutboxFault:
    return OutboxFault(
        f"the outbox {str(folder)!r} cannot be used: {error.strerror}",
        "set TOOLGATE_OUTBOX to a folder on a local disk that this user may write, or to 'memory'",
    )


def explain(error: sqlite3.Error, path: object) -> Exception:
    """Return the `Busy` or `OutboxFault` that corresponds to an error of SQLite; the caller raises it."""
    code = getattr(error, "sqlite_errorcode", None)
    code = None if code is None else code & _PRIMARY_CODE
    name = repr(str(path))
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Busy(str(error))
        case sqlite3.SQLITE_FULL:
            return OutboxFault(f"the disk has no space for the outbox {name}", "free space on the disk")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return OutboxFault(
                f"the outbox {name} cannot be written ({error})",
                "make the outbox writable, or set TOOLGATE_OUTBOX to a writable folder or to 'memory'",
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            # The file is not moved away automatically, because it may contain entries that were never sent.
            return OutboxFault(
                f"the outbox {name} is damaged, or is not an outbox file ({error})",
                "move the file to another folder, together with the files that end in -wal and -shm; keep all "
                "these files, because they may contain unsent log entries",
            )
    return OutboxFault(
        f"the outbox {name} cannot be used ({error})",
        "check the disk, or set TOOLGATE_OUTBOX to another folder",
    )
