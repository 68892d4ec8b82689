"""Whether the database can be used, looked at without a trace."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from toolgate_service.configuration.findings import Finding, wrong
from toolgate_service.errors import StorageError
from toolgate_service.sealed import has_no_secret, opens_sealed, other_secret
from toolgate_service.settings import Settings
from toolgate_service.storage.database import is_embedded, open_database
from toolgate_service.storage.migrate import Schema, schema_of
from toolgate_service.storage.sqlite import sqlite_path
from toolgate_service.vault import Vault

USE = "name a file in a directory you may write with TOOLGATE_DATABASE_URL=sqlite:///PATH"
_VERSION = text("SHOW server_version")


async def look_at_database(settings: Settings, vault: Vault | None) -> Sequence[Finding]:
    """Say whether the database can be used, how its schema stands, and whether the secret fits it.

    Args:
        settings: which database.
        vault: made of the secret; None where there is none.
    """
    try:
        if is_embedded(settings.database_url):
            return _look_at_file(sqlite_path(settings.database_url), settings, vault)
        database = open_database(settings.database_url)
        try:
            async with database.opened() as connection:
                version = (await connection.execute(_VERSION)).scalar_one()
                return await connection.run_sync(_findings, f"PostgreSQL {version}", settings, vault)
        finally:
            await database.close()
    except StorageError as error:
        return [wrong("database", error)]
    except SQLAlchemyError as error:
        # Without the driver's own words: they may quote the URL.
        return [Finding("database", "wrong", f"cannot use the database: {type(error).__name__}")]


def _look_at_file(path: Path, settings: Settings, vault: Vault | None) -> Sequence[Finding]:
    try:
        if problem := _unusable(path):
            return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {problem}", USE)]
        if not path.exists():
            return [Finding("database", "ok", f"{str(path)!r} is not there yet; the first start makes it")]
    except OSError as error:
        return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {error.strerror}", USE)]
    # With a log beside it a gateway is at work, and its readers' marks are there already. Without, opening the file in
    # the usual way would make them.
    beside = [path.with_name(f"{path.name}{suffix}").exists() for suffix in ("-wal", "-shm")]
    how = "mode=ro" if all(beside) else "mode=ro&immutable=1"
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)
    )
    try:
        with engine.connect() as connection:
            return _findings(connection, f"SQLite {sqlite3.sqlite_version}, {str(path)!r}", settings, vault)
    except DBAPIError as error:
        return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {error.orig}", USE)]
    finally:
        engine.dispose()


def _unusable(path: Path) -> str | None:
    """Return why a gateway could not use or create a file; None when it could."""
    if path.is_dir():
        return "it is a directory"
    if path.exists():
        return None if os.access(path, os.R_OK | os.W_OK) else "it cannot be read and written"
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return f"{str(folder)!r} is not a directory"
    return (
        None if os.access(folder, os.W_OK | os.X_OK) else f"the directory {str(folder)!r} cannot be written"
    )


def _findings(
    connection: Connection, what: str, settings: Settings, vault: Vault | None
) -> Sequence[Finding]:
    schema = schema_of(connection)
    findings = [_judged(what, schema, settings)]
    if schema.current is not None and (vault is not None or has_no_secret(settings)):
        try:
            fits = opens_sealed(connection, vault)
        except SQLAlchemyError:
            # A schema that is no gateway's, or too new: that stands above.
            return findings
        if not fits:
            findings.append(Finding("secret", "wrong", *other_secret(settings, missing=vault is None)))
    return findings


def _judged(what: str, schema: Schema, settings: Settings) -> Finding:
    if not schema.known:
        if schema.usable:
            return Finding(
                "database", "warning", f"{what}; schema {schema.current}, a newer version's, usable"
            )
        return Finding(
            "database",
            "wrong",
            f"{what}; schema {schema.current}, which this version does not know",
            "upgrade this installation",
        )
    if not schema.pending:
        return Finding("database", "ok", f"{what}; schema {schema.current}, up to date")
    stands = f"schema {schema.current}" if schema.current else "no schema yet"
    if settings.migrate == "check":
        return Finding("database", "wrong", f"{what}; {stands}", "run 'toolgate db upgrade'")
    return Finding("database", "ok", f"{what}; {stands}, the start brings it to {schema.newest}")
