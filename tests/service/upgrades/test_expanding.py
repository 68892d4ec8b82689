"""No migration takes away what the version before uses: the schema before and after each is compared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, inspect, text
from support.databases import empty_database, engine

from toolgate_service.db.migrate import CONTRACTS, MIGRATIONS, configuration

#: the newest migration of the first version that others were served beside
FIRST = "0013"
#: what a migration names that is harmless to the version before, and why
HARMLESS = "HARMLESS"

Schema = Mapping[str, Mapping[str, Any]]


def scripts() -> list[Script]:
    """Return the migrations that must expand, in order."""
    found = list(ScriptDirectory(str(MIGRATIONS)).walk_revisions(FIRST, "heads"))
    return [script for script in reversed(found) if script.revision != FIRST]


def schema(connection: Connection) -> Schema:
    """Return what every table is made of."""
    looked = inspect(connection)
    return {
        table: {
            "columns": {column["name"]: column for column in looked.get_columns(table)},
            "indexes": {
                str(index["name"]): (bool(index["unique"]), tuple(index["column_names"]))
                for index in looked.get_indexes(table)
            },
            "uniques": {
                str(one["name"]): tuple(one["column_names"]) for one in looked.get_unique_constraints(table)
            },
            "keys": {
                str(one["name"]): (tuple(one["constrained_columns"]), one["referred_table"])
                for one in looked.get_foreign_keys(table)
            },
            "checks": {str(one["name"]): one["sqltext"] for one in looked.get_check_constraints(table)},
            "primary": {"primary key": tuple(looked.get_pk_constraint(table)["constrained_columns"])},
        }
        for table in looked.get_table_names()
        if table != "alembic_version"
    }


def taken_away(before: Schema, after: Schema) -> dict[str, str]:
    """Return what the version before would miss, or stumble over: a thing's name, and what became of it."""
    found: dict[str, str] = {}
    for table, was in before.items():
        if table not in after:
            found[table] = "the table is gone"
            continue
        is_now = after[table]
        found |= _columns(table, was["columns"], is_now["columns"])
        found |= _indexes(was["indexes"], is_now["indexes"])
        for kind in ("uniques", "keys", "checks", "primary"):
            for name, made_of in is_now[kind].items():
                if was[kind].get(name) != made_of:
                    found[name] = f"a new constraint of {table} may refuse what the version before writes"
        for name in was["uniques"].keys() - is_now["uniques"].keys():
            found[name] = "the unique constraint is gone"
    return found


def _indexes(was: Mapping[str, Any], is_now: Mapping[str, Any]) -> dict[str, str]:
    # What writes "on conflict" names the columns of a unique one; any other only makes haste.
    gone = {
        name: "the unique index is gone" for name, one in was.items() if one[0] and is_now.get(name) != one
    }
    new = {
        name: f"a new unique index on {columns} may refuse what the version before writes"
        for name, (unique, columns) in is_now.items()
        if unique and name not in was
    }
    return gone | new


def _columns(table: str, was: Mapping[str, Any], is_now: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, column in was.items():
        place = f"{table}.{name}"
        if name not in is_now:
            found[place] = "the column is gone"
        elif str(is_now[name]["type"]) != str(column["type"]):
            found[place] = f"the type was {column['type']} and is {is_now[name]['type']}"
        elif column["nullable"] and not is_now[name]["nullable"]:
            found[place] = "the column may no longer be null"
        elif column["default"] is not None and is_now[name]["default"] is None:
            found[place] = "the default is gone"
    for name in is_now.keys() - was.keys():
        if not is_now[name]["nullable"] and is_now[name]["default"] is None:
            found[f"{table}.{name}"] = "a new column that may not be null has no default"
    return found


async def test_every_migration_expands(tmp_path: Path) -> None:
    """What a migration takes away it says: which revision expanded before, or why it harms nobody."""
    made = engine(empty_database(tmp_path))
    try:
        async with made.begin() as connection:
            await connection.run_sync(_to, FIRST)
            before = await connection.run_sync(schema)
            for script in scripts():
                await connection.run_sync(_to, script.revision)
                after = await connection.run_sync(schema)
                if _contracts(script) is None:
                    harmless = getattr(script.module, HARMLESS, {})
                    gone = {
                        name: why for name, why in taken_away(before, after).items() if name not in harmless
                    }
                    assert not gone, (
                        f"migration {script.revision} only may expand; see docs/internals/migrations.md: {gone}"
                    )
                before = after
    finally:
        await made.dispose()


def _to(connection: Connection, revision: str) -> None:
    command.upgrade(configuration(connection), revision)


def _contracts(script: Script) -> str | None:
    found: str | None = getattr(script.module, CONTRACTS, None)
    return found


def test_what_contracts_names_what_expanded() -> None:
    """The revision that a contracting migration names is one before it, and exceptions have their reasons."""
    revisions = [FIRST]
    for script in scripts():
        contracts = _contracts(script)
        assert contracts is None or contracts in revisions, script.revision
        assert all(getattr(script.module, HARMLESS, {}).values()), script.revision
        revisions.append(script.revision)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("ALTER TABLE things DROP COLUMN free", "things.free"),
        ("ALTER TABLE things RENAME COLUMN free TO other", "things.free"),
        ("ALTER TABLE things ADD COLUMN demanded INTEGER NOT NULL", "things.demanded"),
        ("ALTER TABLE things RENAME TO others", "things"),
        ("DROP TABLE things", "things"),
        ("DROP INDEX ux_things", "ux_things"),
        ("CREATE UNIQUE INDEX ux_new ON things (free)", "ux_new"),
        ("ALTER TABLE things ADD COLUMN free2 INTEGER", None),
        ("ALTER TABLE things ADD COLUMN demanded INTEGER NOT NULL DEFAULT 0", None),
        ("CREATE INDEX ix_new ON things (free)", None),
        ("DROP INDEX ix_things", None),
        ("CREATE TABLE others (id INTEGER PRIMARY KEY)", None),
    ],
)
def test_what_takes_away_is_seen(statement: str, named: str | None) -> None:
    """Each way of taking something away is named, and what only adds is not."""
    made = sa.create_engine("sqlite://")
    with made.connect() as connection:
        for one in (
            "CREATE TABLE things (id INTEGER PRIMARY KEY, free TEXT)",
            "CREATE UNIQUE INDEX ux_things ON things (id)",
            "CREATE INDEX ix_things ON things (id)",
        ):
            connection.execute(text(one))
        before = schema(connection)
        connection.execute(text(statement))
        assert list(taken_away(before, schema(connection))) == ([] if named is None else [named])
    made.dispose()
