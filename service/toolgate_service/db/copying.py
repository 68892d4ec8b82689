"""Moving to PostgreSQL: everything that the embedded file has, in one transaction, and looked at again before it ends."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import sqlalchemy as sa

from toolgate_service.db.comparing import Compared, compared
from toolgate_service.db.desk import done, existing_file, first_line, settings_for, worked_on
from toolgate_service.db.report import Report, shown
from toolgate_service.db.rows import COPIED, Columns, rows_of
from toolgate_service.db.whole import alone_with, revision_of
from toolgate_service.errors import StartError, StorageError
from toolgate_service.storage.database import Database, is_embedded
from toolgate_service.storage.migrate import schema_of


def copy(to: str, url: str | None = None) -> Report:
    """Copy the embedded database into an empty one on a PostgreSQL server.

    Nobody serves the file meanwhile: it is held alone for the whole time. What was written is read back and compared row by
    row before it is committed: the server has all of it or nothing.

    Args:
        to: where to, ``postgresql://…``; its schema is made if it has none.
        url: the database, if not that of the settings.

    Raises:
        StartError: either cannot be used, the file is in use, or the other is not empty; nothing was copied.
    """
    chosen = settings_for(url).database_url
    source = existing_file(chosen)
    if is_embedded(to):
        raise StartError("--to names a file; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE")

    async def work() -> list[Compared]:
        with alone_with(source) as file:
            async with worked_on(to) as target:
                try:
                    newest = await _made(target)
                except StorageError as error:
                    raise StartError(str(error).replace("TOOLGATE_DATABASE_URL", "--to")) from None
                revision = revision_of(file, source)
                if revision != newest:
                    raise StartError(
                        f"the schema of {str(source)!r} is {revision}, and that of the other {newest}; bring it up to date "
                        "with 'toolgate db upgrade'"
                    )
                return await _copy(file, target)

    found = done(work())
    lines = [f"{one.table:20} {one.rows:>10}  {one.digest}" for one in found]
    total = sum(one.rows for one in found)
    told = f"{total} rows of {len(found)} tables are in {shown(to)}; each was read back and is the same"
    facts: dict[str, Any] = {
        "database": shown(chosen),
        "to": shown(to),
        "tables": {one.table: {"rows": one.rows, "sha256": one.digest} for one in found},
    }
    secret = "serve it with the same TOOLGATE_SECRET: what is sealed opens with no other"  # noqa: S105 - a sentence
    return Report([*lines, told, secret], facts)


async def _made(target: Database) -> str | None:
    """Make the schema if there is none, and return its revision."""
    async with target.opened() as connection:
        schema = await connection.run_sync(schema_of)
    if schema.current is None:
        await target.start()
        return schema.newest
    return schema.current


async def _copy(file: sqlite3.Connection, target: Database) -> list[Compared]:
    async with _transaction(target) as connection:
        names = ", ".join(table.name for table in COPIED)
        # Nobody else writes into what is looked at below.
        await connection.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        for table in COPIED:
            if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {table.name})"):  # noqa: S608 - names of ours
                raise StartError(
                    f"the table {table.name!r} of the other database has rows; copy into an empty one: nothing was copied"
                )
        file.execute("BEGIN")
        for table in COPIED:
            await _fill(file, connection, table)
        found = [await compared(file, connection, table) for table in COPIED]
        file.execute("ROLLBACK")
    await _analyze(target)
    return found


async def _fill(file: sqlite3.Connection, connection: Any, table: sa.Table) -> None:
    import asyncpg

    columns = Columns(table)
    try:
        await connection.copy_records_to_table(
            table.name,
            records=_each(columns, file),
            columns=columns.names,
            # As long as it takes.
            timeout=None,
        )
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TypeError) as error:
        # In front of the first word in single quotes: behind it stands what the row holds.
        raise StartError(
            f"a row of {table.name!r} is not taken by PostgreSQL ({type(error).__name__}: "
            f"{first_line(error).partition(chr(39))[0].strip()}); nothing was copied"
        ) from None


async def _each(columns: Columns, file: sqlite3.Connection) -> AsyncIterator[tuple[Any, ...]]:
    for row in rows_of(file, columns):
        yield columns.written(row)


@asynccontextmanager
async def _transaction(target: Database) -> AsyncIterator[Any]:
    from toolgate_service.storage.postgres import PostgresDatabase
    from toolgate_service.storage.postgres_connection import (
        DRIVER_FAULTS,
        PATIENT_APPLICATION,
        WRITE_SETTINGS,
    )

    assert isinstance(target, PostgresDatabase)  # noqa: S101 - for the types: a file was refused above
    try:
        connection = await target.connect()
        try:
            async with connection.transaction():
                await connection.execute(f"SELECT {WRITE_SETTINGS}")
                # Reading the file may take long between two tables.
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                await connection.execute(f"SET LOCAL application_name = '{PATIENT_APPLICATION}'")
                await connection.execute("SET LOCAL statement_timeout = 0")
                await connection.execute("SET LOCAL tcp_user_timeout = 0")
                yield connection
        finally:
            # A server that went away says no goodbye.
            with suppress(*DRIVER_FAULTS):
                await connection.close(timeout=10)
    except DRIVER_FAULTS as error:
        # Nobody knows what became of a commit that was not answered: the next attempt does.
        raise StartError(
            f"the PostgreSQL server did not go on ({type(error).__name__}: {first_line(error)}); run this again: a copy that "
            "was committed nevertheless is refused, as its tables have rows"
        ) from None


async def _analyze(target: Database) -> None:
    # Otherwise the server plans for empty tables until it comes by.
    async with target.opened() as connection:
        await connection.execute(sa.text("ANALYZE"))
