"""`toolgate db backup`: copy the SQLite database of an embedded gateway, even while the gateway runs."""

import os
import secrets
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from toolgate_service.cli.context import Report, call, existing_file, settings_for
from toolgate_service.core.crypto import secret_path
from toolgate_service.core.errors import StartError
from toolgate_service.core.settings import Settings

#: Number of database pages that one step copies, about 4 MB.
PAGES = 1000
#: Maximum seconds to wait for a lock that another process holds on the database file.
WAIT = 2


def connect_file(path: Path, *, mode: str = "rw") -> sqlite3.Connection:
    """Open an existing SQLite database file. If the file is missing, it is not created."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=WAIT, isolation_level=None
    )


def copy_snapshot(source: sqlite3.Connection, target: Path) -> None:
    """Copy a consistent snapshot of a database into a new file, and flush the file to disk.

    Other processes can write to the database during the copy. Only the owner can read the new file.

    Raises:
        sqlite3.Error: The database cannot be read, or the disk is full.
        OSError: The target file already exists or cannot be created.
    """
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(connect_file(target)) as made:
        # Write the copy without a journal and without sync, which is faster: after a failure the copy is deleted, and
        # after success it is flushed to disk below.
        made.execute("PRAGMA journal_mode = OFF")
        made.execute("PRAGMA synchronous = OFF")
        with snapshot(source):
            # Hold one snapshot during the whole copy. Otherwise, SQLite would restart the copy after each commit of
            # another process.
            source.backup(made, pages=PAGES, sleep=0)
    with closing(connect_file(target)) as made:
        # The backup has the journal mode of the source, WAL. Switch the mode to DELETE, so that the backup consists of
        # a single file. A gateway that opens the backup switches the mode back to WAL.
        made.execute("PRAGMA journal_mode = DELETE")
    sync(target)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold one snapshot of the database during the `with` block, by means of a read transaction.

    In WAL mode, the read transaction does not block writers.
    """
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield
    finally:
        connection.execute("ROLLBACK")


def check_file(path: Path, named: Path) -> str:
    """Check the integrity of a database file, and return the revision of its schema.

    Args:
        path: File to check.
        named: File name in error messages; if a copy is checked, the name of the original.

    Raises:
        StartError: The file is damaged, or is not the database of a gateway.
    """
    try:
        with closing(connect_file(path)) as connection:
            problems = [row[0] for row in connection.execute("PRAGMA integrity_check(1)") if row[0] != "ok"]
            if not problems and connection.execute("PRAGMA foreign_key_check").fetchone():
                problems = ["some rows refer to rows of another table that do not exist"]
            if problems:
                raise StartError(f"{str(named)!r} is damaged: {problems[0]}")
            return revision_of(connection, named)
    except sqlite3.DatabaseError as error:
        raise StartError(f"{str(named)!r} is damaged: {error}") from None


def revision_of(connection: sqlite3.Connection, path: Path) -> str:
    """Return the revision of the database's schema.

    Raises:
        StartError: The database contains no revision, so it is not the database of a gateway.
    """
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.OperationalError:
        found = []
    if len(found) != 1:
        raise StartError(f"{str(path)!r} is not the database of a Toolgate gateway; name another file")
    return str(found[0][0])


def publish(draft: Path, target: Path, *, force: bool) -> None:
    """Give a finished temporary file its final name, and flush the folder to disk.

    `force` replaces an existing file with this name.

    Raises:
        FileExistsError: A file with this name exists, and `force` is False.
    """
    if force:
        draft.replace(target)
    else:
        # Create a hard link instead of renaming the file, because renaming would overwrite an existing target.
        try:
            target.hardlink_to(draft)
        except FileExistsError:
            raise
        except OSError:
            # Some file systems, such as those of many USB drives, do not support hard links: reserve the name with an
            # empty file, then replace that file.
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            draft.replace(target)
        draft.unlink(missing_ok=True)
    sync(target.parent)


@contextmanager
def draft_file(target: Path) -> Iterator[Path]:
    """Yield the path of a temporary file next to `target`.

    At the end of the `with` block, the temporary file is deleted, unless it was renamed to `target`.
    """
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with _ending_on_sigterm():
            yield draft
    finally:
        for path in (draft, *companion_files(draft), draft.with_name(f"{draft.name}-journal")):
            with suppress(FileNotFoundError):
                path.unlink()


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Raise `SystemExit` on SIGTERM during the `with` block, so that temporary files are deleted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def companion_files(path: Path) -> tuple[Path, Path]:
    """Return the paths of the `-wal` and `-shm` files that SQLite creates next to an open database."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def sync(path: Path) -> None:
    """Flush a file, or the list of files in a folder, to disk."""
    if path.is_dir() and os.name != "posix":
        # Windows cannot open folders and does not need to flush them.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[sqlite3.Connection]:
    """Lock a database file during the `with` block, so that no gateway can open it.

    In WAL mode, every open connection holds a shared lock even while it is idle, so the file cannot be locked while a
    gateway runs. The lock ends at the latest when this process ends.

    Raises:
        StartError: Another process has the file open.
    """
    with closing(connect_file(path)) as connection:
        try:
            # In the locking mode EXCLUSIVE, SQLite locks the whole file and keeps the lock after the transaction. Set
            # the mode before the first read, so that SQLite keeps the WAL index in its own memory, not in shared memory.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                raise
            raise StartError(
                f"{str(path)!r} is in use: stop every gateway and every other program that has this file open, then run the command again"
            ) from None
        yield connection


def secret_reminder(settings: Settings) -> list[str]:
    """Return a line of text that reminds the operator to back up the gateway's secret too."""
    where = "TOOLGATE_SECRET" if settings.secret else f"the file {str(secret_path())!r}"
    return [
        f"back up the secret too, in another place ({where}): without it, API keys and webhook secrets cannot be decrypted"
    ]


def backup(file: Path, url: str | None = None, *, force: bool = False) -> Report:
    """Copy the database of an embedded gateway into a file.

    The copy contains every change that was committed before the call.

    Args:
        file: Target file. It appears only after the copy is complete, checked and flushed to disk.
        url: URL of the database; by default, the URL in the settings.
        force: True to replace an existing file.

    Raises:
        StartError: The database or the target file cannot be used. In this case, no file was created.
    """
    settings = settings_for(url)
    source = existing_file(settings.database_url)
    target = file.expanduser().absolute()
    if target.exists() and target.samefile(source):
        raise StartError(
            f"{str(file)!r} is the database that this command copies; name another file for the copy"
        )
    if target.resolve() in companion_files(source.resolve()):
        raise StartError(
            f"{str(file)!r} belongs to the database that this command copies; name another file for the copy"
        )
    if target.is_dir():
        raise StartError(f"{str(file)!r} is a folder; name a file in it")
    if target.exists() and not force:
        raise StartError(f"{str(file)!r} already exists; replace it with --force, or name another file")
    if not target.parent.is_dir():
        raise StartError(f"the folder {str(target.parent)!r} does not exist; create it, or name another file")
    revision, counts = call(lambda: _copy(source, target, force=force))
    size = target.stat().st_size
    facts: dict[str, Any] = {
        "database": str(source),
        "file": str(target),
        "bytes": size,
        "revision": revision,
    }
    lines = [
        f"copied {str(source)!r} to {str(target)!r}: {size} bytes, checked and written to disk",
        f"schema {revision}, {counts['organizations']} organizations, {counts['log_entries']} log entries",
        *secret_reminder(settings),
    ]
    return Report(lines, facts | {"rows": counts})


def _copy(source: Path, target: Path, *, force: bool) -> tuple[str, dict[str, int]]:
    if force:
        _refuse_in_use(target)
    with draft_file(target) as draft:
        with closing(connect_file(source)) as connection:
            copy_snapshot(connection, draft)
        revision = check_file(draft, source)
        counts = _counts(draft)
        try:
            publish(draft, target, force=force)
        except FileExistsError:
            raise StartError(
                f"{str(target)!r} was created by another program during the backup; replace it with --force, or name another file"
            ) from None
    return revision, counts


def _refuse_in_use(target: Path) -> None:
    """Raise an error if a process uses the file that will be replaced. Otherwise remove its `-wal` and `-shm` files.

    The function opens and closes the database: SQLite removes the two files when the last connection is closed.
    """
    if target.is_file():
        try:
            with exclusive_lock(target):
                pass
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise


def _counts(path: Path) -> dict[str, int]:
    with closing(connect_file(path)) as connection:
        return {name: _count(connection, name) for name in ("organizations", "log_entries")}


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - constant table name
