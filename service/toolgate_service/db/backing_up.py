"""A copy of the embedded file at one moment, while the gateway serves it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from toolgate_service.db.desk import call, existing_file, settings_for
from toolgate_service.db.report import Report
from toolgate_service.db.sealing import keep_the_secret
from toolgate_service.db.whole import alone_with, beside, connected, copied, drafted, look_through, place
from toolgate_service.errors import StartError


def backup(file: Path, url: str | None = None, *, force: bool = False) -> Report:
    """Copy the embedded database into a file: everything that was acknowledged before, and whole.

    Args:
        file: where it goes; it is there once it is complete and on disk, and not before.
        url: the database, if not that of the settings.
        force: whether a file of that name is replaced.

    Raises:
        StartError: the database or the file cannot be used; there is no new file.
    """
    settings = settings_for(url)
    source = existing_file(settings.database_url)
    target = file.expanduser().absolute()
    if target.exists() and target.samefile(source):
        raise StartError(f"{str(file)!r} is the database itself; name another file")
    if target.resolve() in beside(source.resolve()):
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
        *keep_the_secret(settings),
    ]
    return Report(lines, facts | {"rows": counts})


def _copy(source: Path, target: Path, *, force: bool) -> tuple[str, dict[str, int]]:
    if force:
        _refuse_in_use(target)
    with drafted(target) as draft:
        with closing(connected(source)) as connection:
            copied(connection, draft)
        revision = look_through(draft, source)
        counts = _counts(draft)
        try:
            place(draft, target, force=force)
        except FileExistsError:
            raise StartError(
                f"{str(target)!r} was made meanwhile; replace it with --force, or name another file"
            ) from None
    return revision, counts


def _refuse_in_use(target: Path) -> None:
    """See to it that nobody has the file open that is to be replaced, and that nothing of it is left beside it."""
    if target.is_file():
        try:
            with alone_with(target):
                pass
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise


def _counts(path: Path) -> dict[str, int]:
    with closing(connected(path)) as connection:
        return {name: _count(connection, name) for name in ("organizations", "log_entries")}


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - names of ours
