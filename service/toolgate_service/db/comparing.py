"""Whether two databases hold the same, row by row."""

import hashlib
import sqlite3
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import sqlalchemy as sa

from toolgate_service.db.rows import BATCH, Columns, rows_of
from toolgate_service.errors import StartError


@dataclass(frozen=True, slots=True)
class Compared:
    """A table that is the same on both sides.

    Attributes:
        table: its name.
        rows: how many it has.
        digest: SHA-256 of them in the order of their key, in hexadecimal.
    """

    table: str
    rows: int
    digest: str


async def compared(file: sqlite3.Connection, connection: Any, table: sa.Table) -> Compared:
    """Read a table on both sides, in the order of its key, and compare each row.

    Args:
        file: the one.
        connection: the other, in a transaction.
        table: which.

    Raises:
        StartError: they differ; the message names the first row's key.
    """
    columns = Columns(table)
    ours = chain(rows_of(file, columns), repeat(None))
    digest = hashlib.sha256()
    count = 0
    async for record in connection.cursor(columns.query(collate=True), prefetch=BATCH):
        mine, theirs = next(ours), columns.of_server(tuple(record))
        # As written: numbers that are equal may have other digits, and moments other zones.
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
    return StartError(f"the row {key} of {columns.table.name!r} did not arrive as it was; nothing was copied")
