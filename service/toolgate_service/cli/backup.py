"""`toolgate db backup`: consistent copy of the embedded SQLite file, also while gateways use it."""

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

#: number of database pages that one step copies: 4 MB
PAGES = 1000
#: maximum time in seconds to wait for another process's lock on the file
WAIT = 2


def connect_file(path: Path, *, mode: str = "rw") -> sqlite3.Connection:
    """Open an existing SQLite file. A missing file is not created."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=WAIT, isolation_level=None
    )


def copy_snapshot(source: sqlite3.Connection, target: Path) -> None:
    """Copy one snapshot of a database into a new file and sync the file to disk. Writers can continue during the copy.

    Only the owner can read the new file.

    Raises:
        sqlite3.Error: The database cannot be read, or the disk is full.
        OSError: The target file exists already or cannot be created.
    """
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(connect_file(target)) as made:
        # No journal and no sync during the copy: an incomplete copy is deleted, and a complete one is synced below.
        made.execute("PRAGMA journal_mode = OFF")
        made.execute("PRAGMA synchronous = OFF")
        with snapshot(source):
            # Copy within one snapshot: without it, each commit of another process would restart the copy.
            source.backup(made, pages=PAGES, sleep=0)
    with closing(connect_file(target)) as made:
        # In this journal mode the copy is one file, without `-wal` and `-shm` files beside it. A gateway that uses the
        # file switches it back to WAL mode.
        made.execute("PRAGMA journal_mode = DELETE")
    sync(target)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold a read transaction, and thereby one snapshot, during the block. In WAL mode it does not block writers."""
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield
    finally:
        connection.execute("ROLLBACK")


def check_file(path: Path, named: Path) -> str:
    """Check the integrity of a whole database file and return the revision of its schema.

    Args:
        path: File to check.
        named: Original of the file, named in error messages.

    Raises:
        StartError: The file is damaged, or is not the database of a gateway.
    """
    try:
        with closing(connect_file(path)) as connection:
            problems = [row[0] for row in connection.execute("PRAGMA integrity_check(1)") if row[0] != "ok"]
            if not problems and connection.execute("PRAGMA foreign_key_check").fetchone():
                problems = ["rows point to rows that are not there"]
            if problems:
                raise StartError(f"{str(named)!r} is damaged: {problems[0]}")
            return revision_of(connection, named)
    except sqlite3.DatabaseError as error:
        raise StartError(f"{str(named)!r} is damaged: {error}") from None


def revision_of(connection: sqlite3.Connection, path: Path) -> str:
    """Return the revision of a database's schema.

    Raises:
        StartError: The database contains no revision, so it is not the database of a gateway.
    """
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.OperationalError:
        found = []
    if len(found) != 1:
        raise StartError(f"{str(path)!r} is no gateway's database")
    return str(found[0][0])


def publish(draft: Path, target: Path, *, force: bool) -> None:
    """Rename a finished draft file to its final name and sync the folder. Replace an existing file only with `force`.

    Raises:
        FileExistsError: A file with this name exists, and `force` is false.
    """
    if force:
        draft.replace(target)
    else:
        # Create a hard link instead of renaming: if two commands write the same name, the second one fails.
        try:
            target.hardlink_to(draft)
        except FileExistsError:
            raise
        except OSError:
            # The file system does not support hard links, as on many USB drives. Create an empty file to reserve the
            # name, then replace it with the draft.
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            draft.replace(target)
        draft.unlink(missing_ok=True)
    sync(target.parent)


@contextmanager
def draft_file(target: Path) -> Iterator[Path]:
    """Yield the path of a temporary file next to `target`; at the end of the block, delete its remaining files."""
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
    """Make SIGTERM raise `SystemExit` during the block, so that a terminated backup deletes its temporary files."""
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
    """Return the paths of the `-wal` and `-shm` files that SQLite creates next to a database in use."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    if path.is_dir() and os.name != "posix":
        # Windows cannot open folders and does not need this sync.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[sqlite3.Connection]:
    """Lock a database file exclusively during the block. While it is locked, no gateway can open the file.

    In WAL mode each open connection holds a shared lock, even while it is idle. So a running gateway prevents the
    exclusive lock. A lock ends with its process.

    Raises:
        StartError: Another process has the file open.
    """
    with closing(connect_file(path)) as connection:
        try:
            # Set this mode before the first read: SQLite then locks the whole file and keeps the lock after the
            # transaction.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                raise
            raise StartError(
                f"{str(path)!r} is in use: stop every gateway that serves it, and whatever else has it open"
            ) from None
        yield connection


def secret_reminder(settings: Settings) -> list[str]:
    """Return the line that reminds the operator to back up the gateway's secret too."""
    where = "TOOLGATE_SECRET" if settings.secret else f"the file {str(secret_path())!r}"
    return [
        f"keep the secret too, elsewhere ({where}): without it API keys and webhook secrets cannot be shown or used again"
    ]


def backup(file: Path, url: str | None = None, *, force: bool = False) -> Report:
    """Copy the embedded database into a file. The copy contains every change that was acknowledged before the call.

    Args:
        file: Target file. It appears only when the copy is complete, checked and synced to disk.
        url: URL of the database; by default the URL in the settings.
        force: Whether to replace an existing file.

    Raises:
        StartError: The database or the target file cannot be used. No file was created.
    """
    settings = settings_for(url)
    source = existing_file(settings.database_url)
    target = file.expanduser().absolute()
    if target.exists() and target.samefile(source):
        raise StartError(f"{str(file)!r} is the database itself; name another file")
    if target.resolve() in companion_files(source.resolve()):
        raise StartError(f"{str(file)!r} is a part of the database; name another file")
    if target.is_dir():
        raise StartError(f"{str(file)!r} is a folder; name a file in it")
    if target.exists() and not force:
        raise StartError(f"{str(file)!r} is there already; replace it with --force, or name another file")
    if not target.parent.is_dir():
        raise StartError(f"there is no folder {str(target.parent)!r}; make it, or name another file")
    revision, counts = call(lambda: _copy(source, target, force=force))
    size = target.stat().st_size
    facts: dict[str, Any] = {
        "database": str(source),
        "file": str(target),
        "bytes": size,
        "revision": revision,
    }
    lines = [
        f"{str(source)!r} is in {str(target)!r}: {size} bytes, looked through and on disk",
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
                f"{str(target)!r} was made meanwhile; replace it with --force, or name another file"
            ) from None
    return revision, counts


def _refuse_in_use(target: Path) -> None:
    """Check that no process uses the file that will be replaced, and remove its `-wal` and `-shm` files.

    SQLite removes these two files when the last connection is closed.
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
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - names of ours
