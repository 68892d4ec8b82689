"""Rows of every table, as either database keeps them and as Python has them."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import asyncpg

from toolgate_service.storage.floor import SchemaFloor
from toolgate_service.storage.tables import METADATA

Row: TypeAlias = tuple[Any, ...]
_Convert: TypeAlias = Callable[[Any], Any]

#: what is copied, in an order that foreign keys allow; each database's migrations write their own floor
COPIED: Sequence[sa.Table] = tuple(
    table for table in METADATA.sorted_tables if table.name != SchemaFloor.__tablename__
)
#: rows that are read from a file at once
BATCH = 1000

_SQLITE = sqlite.dialect()
_POSTGRES: sa.Dialect = asyncpg.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped


class Columns:
    """How the rows of a table are read and written.

    Attributes:
        table: the table.
        names: its columns.
    """

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self.names = [column.name for column in table.columns]
        types = [column.type for column in table.columns]
        self._from_file = [_reading(one, _SQLITE) for one in types]
        self._from_server = [_reading(one, _POSTGRES) for one in types]
        self._to_server = [_writing(one, _POSTGRES) for one in types]

    def of_file(self, row: Row) -> Row:
        """Return a row of a file as Python has it."""
        return _each(self._from_file, row)

    def of_server(self, row: Row) -> Row:
        """Return a row of a server as Python has it."""
        return _each(self._from_server, row)

    def written(self, row: Row) -> Row:
        """Return a row, as Python has it, as a server takes it."""
        return _each(self._to_server, row)

    def query(self, *, collate: bool) -> str:
        """Return what reads the table in the order of its key, which is the same on either side.

        Args:
            collate: whether texts are put into the order of their bytes; a file knows no other.
        """
        order = ", ".join(
            f'"{column.name}" COLLATE "C"' if collate and _is_text(column.type) else f'"{column.name}"'
            for column in self.table.primary_key.columns
        )
        names = ", ".join(f'"{name}"' for name in self.names)
        return f'SELECT {names} FROM "{self.table.name}" ORDER BY {order}'  # noqa: S608 - names of ours


def rows_of(file: sqlite3.Connection, columns: Columns) -> Iterator[Row]:
    """Read a table of a file, as Python has it."""
    cursor = file.execute(columns.query(collate=False))
    while batch := cursor.fetchmany(BATCH):
        for row in batch:
            yield columns.of_file(row)


def _each(converts: Sequence[_Convert | None], row: Row) -> Row:
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
