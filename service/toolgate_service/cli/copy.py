"""`toolgate db copy`: copy the SQLite database of an embedded gateway to PostgreSQL.

The copy is made in one transaction, and every copied row is compared with the original.
"""

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import asyncpg

from toolgate_service.cli.backup import exclusive_lock, revision_of
from toolgate_service.cli.context import (
    Report,
    display_url,
    done,
    existing_file,
    first_line,
    opened_database,
    settings_for,
)
from toolgate_service.core.errors import StartError, StorageError
from toolgate_service.core.settings import is_embedded
from toolgate_service.db.database import Database
from toolgate_service.db.migrate import SchemaFloor, schema_of
from toolgate_service.migrations.metadata import METADATA
from toolgate_service.organizations.models import Epoch

Row: TypeAlias = tuple[Any, ...]
_Convert: TypeAlias = Callable[[Any], Any]

#: Tables that are not copied, because migrations and triggers have already filled them in the target database.
_OWN = frozenset({SchemaFloor.__tablename__, Epoch.__tablename__})
#: Tables that are copied. A table comes after the tables to which its foreign keys refer.
COPIED: Sequence[sa.Table] = tuple(table for table in METADATA.sorted_tables if table.name not in _OWN)
#: Number of rows that are read from a database in one step.
BATCH = 1000

_SQLITE = sqlite.dialect()
_POSTGRES: sa.Dialect = asyncpg.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy has no type for it


class Columns:
    """Columns of a table, with the conversion of its rows between SQLite, PostgreSQL and Python values.

    Attributes:
        table: Table to which the rows belong.
        names: Names of the columns.
    """

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self.names = [column.name for column in table.columns]
        types = [column.type for column in table.columns]
        self._from_file = [_reading(one, _SQLITE) for one in types]
        self._from_server = [_reading(one, _POSTGRES) for one in types]
        self._to_server = [_writing(one, _POSTGRES) for one in types]

    def from_file(self, row: Row) -> Row:
        """Convert a row that was read from the SQLite file to Python values."""
        return _convert_each(self._from_file, row)

    def from_server(self, row: Row) -> Row:
        """Convert a row that was read from the PostgreSQL server to Python values."""
        return _convert_each(self._from_server, row)

    def to_server(self, row: Row) -> Row:
        """Convert a row of Python values to values that the PostgreSQL driver accepts."""
        return _convert_each(self._to_server, row)

    def query(self, *, collate: bool) -> str:
        """Return the SQL query that reads all rows of the table in the order of the primary key.

        Args:
            collate: True for PostgreSQL: the query then sorts text by bytes (`COLLATE "C"`), as SQLite always does, so
                that the rows of both databases have the same order.
        """
        order = ", ".join(
            f'"{column.name}" COLLATE "C"' if collate and _is_text(column.type) else f'"{column.name}"'
            for column in self.table.primary_key.columns
        )
        names = ", ".join(f'"{name}"' for name in self.names)
        return f'SELECT {names} FROM "{self.table.name}" ORDER BY {order}'  # noqa: S608 - all names are constants


def rows_of(file: sqlite3.Connection, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a table in the SQLite file as Python values."""
    cursor = file.execute(columns.query(collate=False))
    while batch := cursor.fetchmany(BATCH):
        for row in batch:
            yield columns.from_file(row)


def _convert_each(converts: Sequence[_Convert | None], row: Row) -> Row:
    return tuple(
        value if value is None or convert is None else convert(value)
        for convert, value in zip(converts, row, strict=True)
    )


def _reading(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> _Convert | None:
    return kind.dialect_impl(dialect).result_processor(dialect, None)


def _writing(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> _Convert | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)


def _is_text(kind: sa.types.TypeEngine[Any]) -> bool:
    return isinstance(kind.dialect_impl(_POSTGRES), sa.String)


@dataclass(frozen=True, slots=True)
class Compared:
    """Table whose rows were found to be equal in both databases.

    Attributes:
        table: Name of the table.
        rows: Number of rows.
        digest: SHA-256 hash of all rows in the order of the primary key, in hexadecimal.
    """

    table: str
    rows: int
    digest: str


async def compare_table(file: sqlite3.Connection, connection: Any, table: sa.Table) -> Compared:
    """Read a table from both databases in the order of the primary key, and compare the rows.

    Args:
        file: Connection to the SQLite file.
        connection: Connection to PostgreSQL with an open transaction.
        table: Table to compare.

    Raises:
        StartError: A row differs or is missing. The message contains the primary key of the first such row.
    """
    columns = Columns(table)
    ours = chain(rows_of(file, columns), repeat(None))
    digest = hashlib.sha256()
    count = 0
    async for record in connection.cursor(columns.query(collate=True), prefetch=BATCH):
        mine, theirs = next(ours), columns.from_server(tuple(record))
        # Compare the text forms of the values, because Python treats some different values as equal: the numbers 1.0
        # and 1.00, and the same time in two time zones.
        if repr(mine) != repr(theirs):
            raise _differ(columns, mine or theirs)
        digest.update(repr(theirs).encode("utf-8", "surrogatepass"))
        count += 1
    left = next(ours)
    if left is not None:
        raise _differ(columns, left)
    return Compared(table.name, count, digest.hexdigest())


def _differ(columns: Columns, row: tuple[Any, ...]) -> StartError:
    named = dict(zip(columns.names, row, strict=True))
    key = {column.name: named[column.name] for column in columns.table.primary_key.columns}
    return StartError(
        f"row {key} of {columns.table.name!r} in PostgreSQL differs from the row in the SQLite file, so the copy was "
        "undone"
    )


def copy(to: str, url: str | None = None) -> Report:
    """Copy the SQLite database of an embedded gateway into an empty PostgreSQL database.

    No gateway can use the file during the copy, because it is locked. Every copied row is read back and compared before
    the commit. After the command, PostgreSQL therefore contains either all rows or none.

    Args:
        to: URL of the target database, ``postgresql://…``. If it has no schema, the schema is created.
        url: URL of the embedded database; by default, the URL in the settings.

    Raises:
        StartError: A database cannot be used, the file is in use, or the target is not empty. Nothing was copied.
    """
    chosen = settings_for(url).database_url
    source = existing_file(chosen)
    if is_embedded(to):
        raise StartError(
            "--to is the URL of a SQLite file; expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )

    async def work() -> list[Compared]:
        with exclusive_lock(source) as file:
            async with opened_database(to) as target:
                try:
                    newest = await _prepare_schema(target)
                except StorageError as error:
                    raise StartError(str(error).replace("TOOLGATE_DATABASE_URL", "--to")) from None
                revision = revision_of(file, source)
                if revision != newest:
                    raise StartError(
                        f"the schema of {str(source)!r} is {revision}, but the schema of the target is {newest}; upgrade the "
                        "older one with 'toolgate db upgrade'"
                    )
                return await _copy(file, target)

    found = done(work())
    lines = [f"{one.table:20} {one.rows:>10}  {one.digest}" for one in found]
    total = sum(one.rows for one in found)
    summary = f"copied {total} rows of {len(found)} tables to {display_url(to)}; each row was read back and is identical"
    facts: dict[str, Any] = {
        "database": display_url(chosen),
        "to": display_url(to),
        "tables": {one.table: {"rows": one.rows, "sha256": one.digest} for one in found},
    }
    secret = "start the gateway with the same TOOLGATE_SECRET: no other secret decrypts the stored keys"  # noqa: S105 - text for the operator
    return Report([*lines, summary, secret], facts)


async def _prepare_schema(target: Database) -> str | None:
    """Create the schema in the target database if it has none, and return the schema's revision."""
    async with target.opened() as connection:
        schema = await connection.run_sync(schema_of)
    if schema.current is None:
        await target.start()
        return schema.newest
    return schema.current


_NEXT_CHUNK = (
    "SELECT setval('transparency_chunks_sequence_seq', max(sequence)) FROM transparency_chunks "
    "HAVING max(sequence) IS NOT NULL"
)


async def _copy(file: sqlite3.Connection, target: Database) -> list[Compared]:
    async with _transaction(target) as connection:
        names = ", ".join(table.name for table in COPIED)
        # Lock the tables, so that no other client can write to them after the check that they are empty.
        await connection.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        for table in COPIED:
            if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {table.name})"):  # noqa: S608 - constant names
                raise StartError(
                    f"nothing was copied, because the table {table.name!r} of the target is not empty; name an empty database"
                )
        file.execute("BEGIN")
        for table in COPIED:
            await _fill(file, connection, table)
        found = [await compare_table(file, connection, table) for table in COPIED]
        file.execute("ROLLBACK")
        # Set the sequence to the highest copied number, because copying rows with their numbers does not advance it.
        await connection.execute(_NEXT_CHUNK)
    await _analyze(target)
    return found


async def _fill(file: sqlite3.Connection, connection: Any, table: sa.Table) -> None:
    import asyncpg

    columns = Columns(table)
    try:
        await connection.copy_records_to_table(
            table.name,
            records=_converted_rows(columns, file),
            columns=columns.names,
            # Set no time limit, because the duration depends on the size of the table.
            timeout=None,
        )
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TypeError) as error:
        # Show the driver's message only up to the first quote, because the rest may contain data of the row.
        raise StartError(
            f"PostgreSQL rejected a row of {table.name!r} ({type(error).__name__}: "
            f"{first_line(error).partition(chr(39))[0].strip()}); nothing was copied"
        ) from None


async def _converted_rows(columns: Columns, file: sqlite3.Connection) -> AsyncIterator[tuple[Any, ...]]:
    for row in rows_of(file, columns):
        yield columns.to_server(row)


@asynccontextmanager
async def _transaction(target: Database) -> AsyncIterator[Any]:
    from toolgate_service.db.postgres import PostgresDatabase
    from toolgate_service.db.postgres_connection import (
        DRIVER_FAULTS,
        PATIENT_APPLICATION,
        WRITE_SETTINGS,
    )

    assert isinstance(target, PostgresDatabase)  # noqa: S101 - for the type checker; `copy` rejects SQLite targets
    try:
        connection = await target.connect()
        try:
            async with connection.transaction():
                await connection.execute(f"SELECT {WRITE_SETTINGS}")
                # Disable all timeouts, because reading and converting the rows of the file can take long between two
                # statements.
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                await connection.execute(f"SET LOCAL application_name = '{PATIENT_APPLICATION}'")
                await connection.execute("SET LOCAL statement_timeout = 0")
                await connection.execute("SET LOCAL tcp_user_timeout = 0")
                yield connection
        finally:
            # Ignore an error while the connection is closed: the connection has failed before, and the earlier error is
            # the one to report.
            with suppress(*DRIVER_FAULTS):
                await connection.close(timeout=10)
    except DRIVER_FAULTS as error:
        # If the connection was lost during the commit, the result is unknown. Running the command again detects a
        # committed copy, because the tables are then not empty.
        raise StartError(
            f"the copy to PostgreSQL failed ({type(error).__name__}: {first_line(error)}); run this command again; if "
            "the command then reports that the target is not empty, the first copy was complete"
        ) from None


async def _analyze(target: Database) -> None:
    # Update the statistics of the tables. Otherwise, PostgreSQL would plan queries as if the tables were empty, until
    # its autovacuum has run.
    async with target.opened() as connection:
        await connection.execute(sa.text("ANALYZE"))
