"""Some thousand rows in every table, of no meaning: PostgreSQL plans by what its tables hold."""

import re
from collections.abc import Mapping

import asyncpg
from sqlalchemy import Boolean, CheckConstraint, Column, Integer, LargeBinary, Table

from support.databases import finished
from toolgate_service.db.models import Id, Timestamp
from toolgate_service.migrations.metadata import METADATA

ROWS = 3_000
ORGANIZATIONS = 50
#: of anything that something belongs to
OWNERS = 500


def crowd(url: str) -> None:
    """Fill every table of a migrated PostgreSQL database, and have the server look at what it holds."""

    async def fill() -> None:
        connection = await asyncpg.connect(url)
        try:
            # Nothing belongs together: no foreign key is held.
            await connection.execute("SET session_replication_role = replica")
            for table in METADATA.sorted_tables:
                await connection.execute(_statement(table))
            await connection.execute("ANALYZE")
        finally:
            await connection.close()

    finished(fill())


def _statement(table: Table) -> str:
    words = _words(table)
    columns = [column for column in table.columns if not isinstance(column.type, LargeBinary)]
    blobs = [column for column in table.columns if isinstance(column.type, LargeBinary)]
    names = ", ".join(f'"{column.name}"' for column in (*columns, *blobs))
    values = ", ".join([*(_value(column, words) for column in columns), *["'\\x00'"] * len(blobs)])
    return f"INSERT INTO {table.name} ({names}) SELECT {values} FROM generate_series(1, {ROWS}) AS n ON CONFLICT DO NOTHING"


def _words(table: Table) -> Mapping[str, str]:
    """Return the words that a column may have, as an array, where a constraint says so."""
    said = [str(one.sqltext) for one in table.constraints if isinstance(one, CheckConstraint)]
    pairs = [text.partition(" IN ") for text in said if " IN " in text]
    # The other spelling, such as "outcome = 'a' OR outcome = 'b'".
    for name, *words in (re.split(" = | OR ", text) for text in said if " OR " in text):
        pairs.append((name, "", ", ".join(words[::2])))
    return {name: f"ARRAY[{words.strip('()')}]" for name, _, words in pairs} | {
        "environment": "ARRAY['production', 'test']"
    }


def _value(column: Column[object], words: Mapping[str, str]) -> str:
    value = _some(column, words)
    return f"CASE WHEN random() < 0.5 THEN {value} END" if column.nullable else value


def _some(column: Column[object], words: Mapping[str, str]) -> str:
    if column.name in words:
        choice = words[column.name]
        return f"({choice})[1 + floor(random() * array_length({choice}, 1))::int]"
    if column.name == "organization_id":
        return f"md5(floor(random() * {ORGANIZATIONS})::text)::uuid"
    match column.type:
        case Id() if column.name == "id":
            return "gen_random_uuid()"
        case Id():
            return f"md5('{column.name}' || floor(random() * {OWNERS}))::uuid"
        case Timestamp():
            return "now() - random() * interval '100 days'"
        case Boolean():
            return "random() < 0.5"
        case Integer():
            return "1 + n % 7"
    length = getattr(column.type, "length", None) or 40
    return f"left(md5(random()::text), {length})"
