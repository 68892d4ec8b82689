"""`toolgate db`: commands for the whole database of a gateway. This module contains `current`, `upgrade` and `check`.

Each command reads the settings and returns a `Report`. If it fails, it raises `StartError` with a one-line message for
the operator and leaves the database unchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, event, text

from toolgate_service.cli.backup import backup
from toolgate_service.cli.context import (
    Report,
    display_url,
    done,
    existing_file,
    open_for_reading,
    opened_database,
    settings_for,
)
from toolgate_service.cli.copy import copy
from toolgate_service.core.settings import is_embedded
from toolgate_service.db.migrate import Schema, schema_of
from toolgate_service.db.migrate import upgrade as run_migrations
from toolgate_service.db.sqlite import sqlite_path
from toolgate_service.migrations.metadata import METADATA

__all__ = ["backup", "check", "copy", "current", "upgrade"]


#: First words of SQL statements that change no data, and are therefore not part of the output of `upgrade --sql`.
_READING = ("SELECT", "PRAGMA", "SHOW")


class _RollBack(Exception):
    """Exception that rolls back the transaction of `upgrade --sql` after its SQL statements were recorded."""


def current(url: str | None = None) -> Report:
    """Report the revision of the database's schema, the latest revision, and the migrations that have not run yet.

    Args:
        url: URL of the database; by default, the URL in the settings.

    Raises:
        StartError: The database cannot be used.
    """
    chosen = settings_for(url).database_url
    schema = done(_schema(chosen))
    return Report(_lines(chosen, schema), _facts(chosen, schema))


def upgrade(url: str | None = None, *, dry_run: bool = False, sql: bool = False) -> Report:
    """Run all migrations that have not run yet. Gateways can use the database at the same time.

    Args:
        url: URL of the database; by default, the URL in the settings.
        dry_run: Only report which migrations would run.
        sql: Only report the SQL statements of the migrations. They are run and then rolled back.

    Raises:
        StartError: The database cannot be used, or its schema is newer than this version. Nothing was changed.
    """
    chosen = settings_for(url).database_url
    if sql:
        return done(_statements(chosen))
    if dry_run:
        schema = done(_schema(chosen))
        would = [f"would run migration {step.revision}: {step.summary}" for step in schema.pending]
        return Report(would or [_up_to_date(schema)], _facts(chosen, schema))
    return done(_upgrade(chosen))


async def _schema(url: str) -> Schema:
    async with open_for_reading(url) as connection:
        return await connection.run_sync(schema_of)


async def _upgrade(url: str) -> Report:
    before: Schema | None = None
    if not is_embedded(url) or sqlite_path(url).is_file():
        before = await _schema(url)
    async with opened_database(url) as database:
        await database.start()
    after = await _schema(url)
    was = before.current if before else None
    # Report all migrations that had not run before this command, even if a gateway, and not this command, has run some
    # of them in the meantime.
    steps = before.pending if before else after.steps
    lines = [f"ran migration {step.revision}: {step.summary}" for step in steps]
    facts = {"database": display_url(url), "before": was, "current": after.current, "newest": after.newest}
    ran = [{"revision": step.revision, "summary": step.summary} for step in steps]
    return Report([*lines, _up_to_date(after)], facts | {"ran": ran})


async def _statements(url: str) -> Report:
    if is_embedded(url):
        existing_file(url)
    statements: list[str] = []

    def run(connection: Connection) -> Schema:
        schema = schema_of(connection)
        with _recording(connection, statements):
            run_migrations(connection)
        return schema

    schema = await _schema(url)
    async with opened_database(url) as database:
        with suppress(_RollBack):
            async with database.opened() as connection:
                schema = await connection.run_sync(run)
                raise _RollBack
    lines = [f"{statement};" for statement in statements]
    return Report(lines or [_up_to_date(schema)], _facts(url, schema) | {"statements": statements})


@contextmanager
def _recording(connection: Connection, statements: list[str]) -> Iterator[None]:
    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        text = statement.strip()
        if not text.upper().startswith(_READING):
            statements.append(f"{text} -- with {parameters!r}" if parameters else text)

    event.listen(connection, "before_cursor_execute", record)
    try:
        yield
    finally:
        event.remove(connection, "before_cursor_execute", record)


def _lines(url: str, schema: Schema) -> list[str]:
    lines = [
        f"database       {display_url(url)}",
        f"schema         {schema.current or 'none yet'}",
        f"latest schema  {schema.newest}",
    ]
    if not schema.known:
        usable = "can use it" if schema.usable else "cannot use it"
        lines.append(f"a newer version of Toolgate upgraded the schema; this version {usable}")
    lines += [f"pending        {step.revision}: {step.summary}" for step in schema.pending]
    if not schema.pending and schema.known:
        lines.append("pending        nothing")
    return lines


def _facts(url: str, schema: Schema) -> dict[str, Any]:
    return {
        "database": display_url(url),
        "current": schema.current,
        "newest": schema.newest,
        "pending": [{"revision": step.revision, "summary": step.summary} for step in schema.pending],
        "known": schema.known,
        "usable": schema.known or schema.usable,
    }


def _up_to_date(schema: Schema) -> str:
    if schema.known:
        return f"the schema is up to date at {schema.current}"
    return f"a newer version of Toolgate created the schema {schema.current}, which this version can use"


#: Maximum number of problems that are reported for a database file.
MAX_PROBLEMS = 20

#: Query for invalid indexes, and for foreign keys that were never validated. They can remain after an interrupted
#: migration, or an interrupted command of an operator.
_UNFINISHED = """
    SELECT 'the index ' || indexrelid::regclass || ' is not valid; rebuild it with REINDEX' FROM pg_index
    JOIN pg_class ON pg_class.oid = indrelid
    WHERE NOT indisvalid AND relkind = 'r' AND relnamespace = quote_ident(current_schema())::regnamespace
    UNION ALL
    SELECT 'the foreign key ' || conname || ' of ' || conrelid::regclass || ' was never validated' FROM pg_constraint
    WHERE contype = 'f' AND NOT convalidated AND connamespace = quote_ident(current_schema())::regnamespace
"""


def check(url: str | None = None) -> Report:
    """Check that a database is intact, its schema is current, and its tables have the expected columns and keys.

    Args:
        url: URL of the database; by default, the URL in the settings.

    Raises:
        StartError: The database cannot be used.
    """
    chosen = settings_for(url).database_url
    schema, problems = done(_check(chosen))
    facts: dict[str, Any] = {
        "database": display_url(chosen),
        "ok": not problems,
        "current": schema.current,
        "newest": schema.newest,
        "problems": problems,
    }
    lines = problems or [f"{display_url(chosen)} is intact, and its schema is up to date at {schema.newest}"]
    return Report(lines, facts, good=not problems)


async def _check(url: str) -> tuple[Schema, list[str]]:
    async with open_for_reading(url) as connection:
        return await connection.run_sync(_problems)


def _problems(connection: Connection) -> tuple[Schema, list[str]]:
    schema = schema_of(connection)
    whole = _broken_file(connection) if connection.dialect.name == "sqlite" else _unfinished(connection)
    return schema, [
        *whole,
        *_revision(schema),
        *(drift(connection) if schema.known and not schema.pending else []),
    ]


def _revision(schema: Schema) -> list[str]:
    if schema.pending:
        state = f"the schema is at {schema.current}" if schema.current else "the schema has not been created"
        return [f"{state}, but this version needs {schema.newest}; run: toolgate db upgrade"]
    if not schema.known:
        usable = (
            "and this version can use the schema"
            if schema.usable
            else "and this version cannot use the schema: install a newer version of Toolgate"
        )
        return [f"a newer version of Toolgate created the schema {schema.current}, {usable}"]
    return []


def drift(connection: Connection) -> list[str]:
    """Return a description of each column, index, unique constraint or foreign key that differs from the models."""
    ours = set(METADATA.tables)

    def is_ours(name: str | None, kind: str, _parents: Any) -> bool:
        # Ignore other tables: they belong to the operator, or are partitions of a table that is already compared.
        return kind != "table" or name in ours

    opts = {"compare_type": True, "include_name": is_ours}
    found = compare_metadata(MigrationContext.configure(connection, opts=opts), METADATA)
    return [_describe_difference(one) for one in found]


def _describe_difference(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(_describe_difference(one) for one in difference)
    kind, *about = difference
    what = kind.partition("_")[2].replace("_", " ")
    names = [name for one in about if (name := _name(one))]
    named = f"the {what} {'.'.join(names)}"
    if kind.startswith("add_"):
        return f"{named} is missing in the database"
    if kind.startswith("remove_"):
        return f"{named} exists in the database, but not in this version of Toolgate"
    return f"{named} differs from its definition in this version of Toolgate"


def _name(one: object) -> str | None:
    if isinstance(one, str):
        return one
    table = getattr(getattr(one, "table", None), "name", None)
    name = getattr(one, "name", None)
    return f"{table}.{name}" if table and isinstance(name, str) else name if isinstance(name, str) else None


def _broken_file(connection: Connection) -> list[str]:
    found = [
        row[0]
        for row in connection.execute(text(f"PRAGMA integrity_check({MAX_PROBLEMS})"))
        if row[0] != "ok"
    ]
    broken = [f"the file is damaged: {told}" for told in found]
    pointing = connection.execute(text("PRAGMA foreign_key_check")).fetchmany(MAX_PROBLEMS)
    return broken + [
        f"row {row[1]} of {row[0]} refers to a row of {row[2]} that does not exist" for row in pointing
    ]


def _unfinished(connection: Connection) -> list[str]:
    return [row[0] for row in connection.execute(text(_UNFINISHED))]
