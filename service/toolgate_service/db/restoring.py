"""The embedded file as a backup has it."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from toolgate_service.db.desk import call, settings_for
from toolgate_service.db.report import Report
from toolgate_service.db.sealing import opens
from toolgate_service.db.whole import (
    alone_with,
    beside,
    connected,
    copied,
    drafted,
    look_through,
    place,
    snapshot,
    sync,
)
from toolgate_service.errors import StartError
from toolgate_service.settings import Settings
from toolgate_service.storage.database import is_embedded
from toolgate_service.storage.migrate import Schema, schema_of
from toolgate_service.storage.sqlite import sqlite_path

SECRETS = {
    True: "the present secret opens what is sealed in it",
    False: "the present secret does not open what is sealed in it: set TOOLGATE_SECRET to the one of the backup, or API keys "
    "and webhook secrets can be neither shown nor used, and everybody has to log in again",
    None: "there is no secret yet, or nothing is sealed: what a backup has sealed needs the secret of its gateway",
}


def restore(file: Path, url: str | None = None) -> Report:
    """Put a backup in the place of the embedded database, and keep what was there aside.

    Args:
        file: the backup; it stays as it is.
        url: the database, if not that of the settings.

    Raises:
        StartError: the backup is damaged or a newer version's, or somebody uses the database; nothing was changed.
    """
    settings = settings_for(url)
    if not is_embedded(settings.database_url):
        raise StartError("restore is for the embedded SQLite file; a PostgreSQL server has pg_restore")
    target = call(lambda: sqlite_path(settings.database_url))
    source = file.expanduser().absolute()
    if not source.is_file():
        raise StartError(f"there is no backup {str(file)!r}")
    if target.exists() and target.samefile(source):
        raise StartError(f"{str(file)!r} is the database itself; name a backup of it")
    return call(lambda: _restore(settings, source, target))


def _restore(settings: Settings, source: Path, target: Path) -> Report:
    with drafted(target) as draft:
        create_folder(target)
        # Looked through here, and not where it lies: looking leaves files beside a database, and that one may not be ours
        # to write.
        try:
            with closing(connected(source, mode="ro")) as connection:
                copied(connection, draft)
        except sqlite3.DatabaseError as error:
            raise StartError(f"{str(source)!r} cannot be read: {error}") from None
        revision = look_through(draft, source)
        _refuse_newer(draft)
        with closing(connected(draft)) as connection:
            opened = opens(settings, connection)
        aside = _put(draft, target)
    lines = [f"{str(target)!r} is as {str(source)!r} has it, schema {revision}"]
    if aside is not None:
        lines.append(f"what was there is in {str(aside)!r}")
    facts: dict[str, Any] = {
        "database": str(target),
        "file": str(source),
        "revision": revision,
        "aside": None if aside is None else str(aside),
        "secret_opens": opened,
    }
    return Report([*lines, SECRETS[opened]], facts)


def create_folder(target: Path) -> None:
    """Make the folder of a database that is not there yet, for its owner alone."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def _refuse_newer(path: Path) -> None:
    schema = _schema(path)
    if not schema.known and not schema.usable:
        raise StartError(
            f"the backup's schema is {schema.current}, a newer version's: restore it with that version"
        )


def _schema(path: Path) -> Schema:
    engine = create_engine("sqlite://", creator=lambda: connected(path))
    try:
        with engine.connect() as connection:
            return schema_of(connection)
    finally:
        engine.dispose()


def _put(draft: Path, target: Path) -> Path | None:
    """Put a finished file in a database's place; return where what was there is now."""
    aside = target.with_name(f"{target.name}.{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
    if not target.exists():
        # Left of a file that was removed, they would be taken for this one's.
        _move_beside(target, aside)
        place(draft, target, force=False)
        return None
    try:
        with alone_with(target) as present:
            copied(present, aside)
            with closing(connected(draft)) as connection, snapshot(connection):
                # Page by page into the same file, in one transaction: a gateway that starts meanwhile waits for this lock,
                # and then finds this and not the file that was.
                connection.backup(present)
            present.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        # No database any more: nobody can serve it.
        target.rename(aside)
        _move_beside(target, aside)
        place(draft, target, force=False)
    sync(target)
    return aside


def _move_beside(target: Path, aside: Path) -> None:
    for path, name in zip(beside(target), beside(aside), strict=True):
        if path.exists():
            path.rename(name)
