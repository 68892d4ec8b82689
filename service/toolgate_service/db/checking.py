"""Whether a database is whole and its schema this version's."""

from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from toolgate_service.db.desk import done, looked_at, settings_for
from toolgate_service.db.report import Report, shown
from toolgate_service.storage.migrate import Schema, schema_of
from toolgate_service.storage.tables import METADATA

#: so many problems of a file are told
TOLD = 20

#: what a migration that broke off, or an operator, left half done
_UNFINISHED = """
    SELECT 'the index ' || indexrelid::regclass || ' is not valid; rebuild it with REINDEX' FROM pg_index
    JOIN pg_class ON pg_class.oid = indrelid
    WHERE NOT indisvalid AND relkind = 'r' AND relnamespace = quote_ident(current_schema())::regnamespace
    UNION ALL
    SELECT 'the foreign key ' || conname || ' of ' || conrelid::regclass || ' was never validated' FROM pg_constraint
    WHERE contype = 'f' AND NOT convalidated AND connamespace = quote_ident(current_schema())::regnamespace
"""


def check(url: str | None = None) -> Report:
    """Look whether a database is whole, and its schema this version's and what the models say.

    Args:
        url: the database, if not that of the settings.

    Raises:
        StartError: the database cannot be used.
    """
    chosen = settings_for(url).database_url
    schema, problems = done(_look(chosen))
    facts: dict[str, Any] = {
        "database": shown(chosen),
        "ok": not problems,
        "current": schema.current,
        "newest": schema.newest,
        "problems": problems,
    }
    lines = problems or [f"{shown(chosen)} is whole, and its schema is this version's, {schema.newest}"]
    return Report(lines, facts, good=not problems)


async def _look(url: str) -> tuple[Schema, list[str]]:
    async with looked_at(url) as connection:
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
        stands = f"is at {schema.current}" if schema.current else "has not been made"
        return [f"the schema {stands}, and this version's is {schema.newest}; run: toolgate db upgrade"]
    if not schema.known:
        may = (
            "which this one may use"
            if schema.usable
            else "which this one may not use: upgrade this installation"
        )
        return [f"the schema is at {schema.current}, a newer version's, {may}"]
    return []


def drift(connection: Connection) -> list[str]:
    """Return how the tables differ from what the models say: columns, indexes, unique and foreign keys."""
    ours = set(METADATA.tables)

    def is_ours(name: str | None, kind: str, _parents: Any) -> bool:
        # Whatever else lies in the database is its operator's; partitions are part of their table.
        return kind != "table" or name in ours

    opts = {"compare_type": True, "include_name": is_ours}
    found = compare_metadata(MigrationContext.configure(connection, opts=opts), METADATA)
    return [_told(one) for one in found]


def _told(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(_told(one) for one in difference)
    kind, *about = difference
    what = kind.partition("_")[2].replace("_", " ")
    names = [name for one in about if (name := _name(one))]
    named = f"the {what} {'.'.join(names)}"
    if kind.startswith("add_"):
        return f"{named} is missing"
    if kind.startswith("remove_"):
        return f"{named} is none of this version's"
    return f"{named} differs from this version's"


def _name(one: object) -> str | None:
    if isinstance(one, str):
        return one
    table = getattr(getattr(one, "table", None), "name", None)
    name = getattr(one, "name", None)
    return f"{table}.{name}" if table and isinstance(name, str) else name if isinstance(name, str) else None


def _broken_file(connection: Connection) -> list[str]:
    found = [row[0] for row in connection.execute(text(f"PRAGMA integrity_check({TOLD})")) if row[0] != "ok"]
    broken = [f"the file is damaged: {told}" for told in found]
    pointing = connection.execute(text("PRAGMA foreign_key_check")).fetchmany(TOLD)
    return broken + [
        f"row {row[1]} of {row[0]} points to a row of {row[2]} that is not there" for row in pointing
    ]


def _unfinished(connection: Connection) -> list[str]:
    return [row[0] for row in connection.execute(text(_UNFINISHED))]
