"""Plain SQL statements that insert chunks of leaves, for the stores of log entries and decisions.

These stores do not use SQLAlchemy.
"""

import sqlite3
from collections.abc import Iterable

from toolgate_service.core.clock import wire
from toolgate_service.transparency.chunks import Chunk

#: columns of a chunk with their PostgreSQL types
_TYPES = {
    "organization_id": "uuid", "environment": "text", "number": "int", "first_at": "timestamptz",
    "last_at": "timestamptz", "subject": "uuid",
}  # fmt: skip
_COLUMNS = ", ".join(_TYPES)

_INSERT_CHUNK = f"INSERT INTO transparency_chunks ({_COLUMNS}) VALUES ({', '.join('?' * len(_TYPES))})"  # noqa: S608 - the inserted names are constants
_LEAVES = "sequence, organization_id, environment, data"
_INSERT_LEAVES = f"INSERT INTO transparency_leaves ({_LEAVES}) VALUES (?, ?, ?, ?)"  # noqa: S608 - the inserted names are constants


def write_chunks(connection: sqlite3.Connection, chunks: Iterable[Chunk]) -> None:
    """Write chunks to SQLite, in the transaction that writes the rows which the leaves describe."""
    for organization_id, environment, number, first_at, last_at, subject, data in chunks:
        values = (organization_id, environment, number, wire(first_at), wire(last_at), subject)
        sequence = connection.execute(_INSERT_CHUNK, values).lastrowid
        connection.execute(_INSERT_LEAVES, (sequence, organization_id, environment, data))


def insert_chunks(first: int, condition: str = "true") -> str:
    """Return common table expressions with which a PostgreSQL statement inserts chunks if `condition` is true.

    The bind parameters of the statement from number `first` on must be the arrays that `columns` returns.
    """
    # Send ids as text, because the driver encodes text faster than UUID objects.
    arrays = ", ".join(
        f"${place}::text[]::uuid[]" if kind == "uuid" else f"${place}::{kind}[]"
        for place, kind in enumerate([*_TYPES.values(), "bytea"], first)
    )
    return f"""
new_chunks AS MATERIALIZED (
    SELECT nextval('transparency_chunks_sequence_seq') AS sequence, c.*
    FROM unnest({arrays}) AS c ({_COLUMNS}, data) WHERE {condition}
), chunks AS (
    INSERT INTO transparency_chunks (sequence, {_COLUMNS}) SELECT sequence, {_COLUMNS} FROM new_chunks
), leaves AS (
    INSERT INTO transparency_leaves ({_LEAVES}) SELECT {_LEAVES} FROM new_chunks
)
"""  # noqa: S608 - the inserted names are constants


def columns(chunks: Iterable[Chunk]) -> list[list[object]]:
    """Return the bind parameters of `insert_chunks`: one array for each column."""
    rows = list(chunks)
    return [[row[place] for row in rows] for place in range(len(_TYPES) + 1)]
