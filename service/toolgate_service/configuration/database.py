"""Whether the database can be used, looked at without a trace."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from toolgate_service.configuration.findings import Finding, wrong
from toolgate_service.errors import StorageError
from toolgate_service.organizations.models import ApiKey
from toolgate_service.settings import Settings
from toolgate_service.storage.database import is_embedded, open_database
from toolgate_service.storage.migrate import Schema, schema_of
from toolgate_service.storage.sqlite import sqlite_path
from toolgate_service.vault import Vault

#: one value that the secret must open
_SEALED = text("SELECT id, organization_id, ciphertext FROM api_keys ORDER BY id DESC LIMIT 1")
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
        from toolgate_service.storage.postgres import PostgresDatabase

        database = open_database(settings.database_url)
        if not isinstance(database, PostgresDatabase):
            raise TypeError(f"no look at a {type(database).__name__}")
        try:
            async with database.opened() as connection:
                version = (await connection.execute(_VERSION)).scalar_one()
                return await connection.run_sync(_findings, f"PostgreSQL {version}", settings, vault)
        finally:
            await database.close()
    except StorageError as error:
        return [wrong("database", error)]


def _look_at_file(path: Path, settings: Settings, vault: Vault | None) -> Sequence[Finding]:
    if not path.exists():
        return [Finding("database", "ok", f"{str(path)!r} is not there yet; the first start makes it")]
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
        return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {error.orig}")]
    finally:
        engine.dispose()


def _findings(
    connection: Connection, what: str, settings: Settings, vault: Vault | None
) -> Sequence[Finding]:
    schema = schema_of(connection)
    findings = [_judged(what, schema, settings)]
    if vault is not None and schema.current is not None:
        try:
            row = connection.execute(_SEALED).first()
        except SQLAlchemyError:
            # A schema that is no gateway's, or too new: that stands above.
            return findings
        if row is not None and not _opens(vault, *row):
            findings.append(
                Finding(
                    "secret",
                    "wrong",
                    "the secret is not the one with which this database's keys were sealed",
                    "set TOOLGATE_SECRET to that one, or TOOLGATE_SECRET_PREVIOUS if it was changed",
                )
            )
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


def _opens(vault: Vault, row: Any, organization: Any, sealed: bytes) -> bool:
    place = {"table": ApiKey.__name__, "row": str(row), "organization": str(organization)}
    return vault.open(bytes(sealed), **place) is not None
