"""SQLite files as a whole: copied at one moment, looked through, put in place, and held alone."""

import os
import secrets
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from toolgate_service.errors import StartError

#: pages that are copied at once: 4 MB
PAGES = 1000
#: seconds that whoever uses a file just now is waited for
WAIT = 2


def connected(path: Path, *, mode: str = "rw") -> sqlite3.Connection:
    """Open a file that is there; none is made."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=WAIT, isolation_level=None
    )


def copied(source: sqlite3.Connection, target: Path) -> None:
    """Copy a database at one moment into a new file of its owner's, synced to disk; writers go on meanwhile.

    Raises:
        sqlite3.Error: it cannot be read, or there is no room.
        OSError: the file is there, or cannot be made.
    """
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(connected(target)) as made:
        # Nobody needs half a copy: it is synced as a whole below.
        made.execute("PRAGMA journal_mode = OFF")
        made.execute("PRAGMA synchronous = OFF")
        with snapshot(source):
            # Step by step within one snapshot: without it, every commit of somebody else would begin the copy anew.
            source.backup(made, pages=PAGES, sleep=0)
    with closing(connected(target)) as made:
        # One file, also while somebody looks at it; a gateway that serves it makes it what it needs.
        made.execute("PRAGMA journal_mode = DELETE")
    sync(target)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read what is there at one moment; in WAL mode nobody waits for that."""
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield
    finally:
        connection.execute("ROLLBACK")


def look_through(path: Path, named: Path) -> str:
    """Return the revision of a file's schema, having looked through the whole file.

    Args:
        path: the file.
        named: the file that it is a copy of, for messages.

    Raises:
        StartError: it is damaged, or no gateway's database.
    """
    try:
        with closing(connected(path)) as connection:
            problems = [row[0] for row in connection.execute("PRAGMA integrity_check(1)") if row[0] != "ok"]
            if not problems and connection.execute("PRAGMA foreign_key_check").fetchone():
                problems = ["rows point to rows that are not there"]
            if problems:
                raise StartError(f"{str(named)!r} is damaged: {problems[0]}")
            return revision_of(connection, named)
    except sqlite3.DatabaseError as error:
        raise StartError(f"{str(named)!r} is damaged: {error}") from None


def revision_of(connection: sqlite3.Connection, path: Path) -> str:
    """Return the revision of a schema.

    Raises:
        StartError: there is none.
    """
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.OperationalError:
        found = []
    if len(found) != 1:
        raise StartError(f"{str(path)!r} is no gateway's database")
    return str(found[0][0])


def place(draft: Path, target: Path, *, force: bool) -> None:
    """Give a finished file its name, on disk; what has the name is replaced only if forced.

    Raises:
        FileExistsError: something has the name.
    """
    if force:
        draft.replace(target)
    else:
        # A link, and no renaming: of two who write the same name one is refused.
        try:
            target.hardlink_to(draft)
        except FileExistsError:
            raise
        except OSError:
            # A disk that knows no links, as many that are carried about: the name is taken first, and then filled.
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            draft.replace(target)
        draft.unlink(missing_ok=True)
    sync(target.parent)


@contextmanager
def drafted(target: Path) -> Iterator[Path]:
    """Name a file beside another, and leave none of it behind."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with _told_to_end():
            yield draft
    finally:
        for path in (draft, *beside(draft), draft.with_name(f"{draft.name}-journal")):
            with suppress(FileNotFoundError):
                path.unlink()


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Have SIGTERM end a block as Ctrl-C does: a timer that gives up on a backup leaves none of it on the disk."""
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


def beside(path: Path) -> tuple[Path, Path]:
    """Return the files that SQLite keeps beside a database in use."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on disk."""
    if path.is_dir() and os.name != "posix":
        # Windows opens no folders, and keeps their entries by itself.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone_with(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold a file alone, until the block ends: whoever serves it keeps this out, and is kept out by this.

    Every connection in WAL mode holds a shared lock for as long as it is open, also while it does nothing; the lock dies
    with its process.

    Raises:
        StartError: somebody has it open.
    """
    with closing(connected(path)) as connection:
        try:
            # Before anything is read: SQLite then asks for the whole file, and keeps it past the transaction.
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
