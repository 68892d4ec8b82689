"""SQL on a live gateway's database, the same on SQLite and PostgreSQL.

Statements write `?` for a value; moments and identifiers are text, moments as the API writes them.
"""

import re
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime
from itertools import count
from typing import Any

import asyncpg

from support.databases import CHOICE, finished
from support.gateway import LiveGateway
from toolgate_service.core.clock import wire


def execute(gateway: LiveGateway, statement: str, *values: object, constrained: bool = True) -> int:
    """Change rows and return how many; unconstrained, also to what no foreign key allows."""
    if CHOICE.server is not None:
        return finished(_execute(gateway.database_url, statement, values, constrained=constrained))
    with closing(sqlite3.connect(gateway.database, timeout=30, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA foreign_keys = {constrained}")
        return connection.execute(statement, values).rowcount


def rows(gateway: LiveGateway, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Read rows."""
    if CHOICE.server is not None:
        return finished(_rows(gateway.database_url, query, values))
    with closing(sqlite3.connect(gateway.database, timeout=30)) as connection:
        return connection.execute(query, values).fetchall()


async def _execute(url: str, statement: str, values: tuple[object, ...], *, constrained: bool) -> int:
    connection = await _connected(url)
    try:
        if not constrained:
            await connection.execute("SET session_replication_role = replica")
        status = await connection.execute(_numbered(statement), *values)
    finally:
        await connection.close()
    # For instance "UPDATE 1", "INSERT 0 1" or "ALTER TABLE".
    changed = status.split()[-1]
    return int(changed) if changed.isdecimal() else 0


async def _rows(url: str, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    connection = await _connected(url)
    try:
        return [tuple(row) for row in await connection.fetch(_numbered(query), *values)]
    finally:
        await connection.close()


async def _connected(url: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(url, server_settings={"timezone": "UTC"})
    for name, decoder in (("uuid", str), ("timestamptz", _moment)):
        await connection.set_type_codec(
            name, encoder=str, decoder=decoder, schema="pg_catalog", format="text"
        )
    return connection


def _moment(text: str) -> str:
    return wire(datetime.fromisoformat(text))


def _numbered(statement: str) -> str:
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", statement)


def contents(gateway: LiveGateway, tables: Iterable[str], organization_id: str) -> dict[str, list[str]]:
    """Return every row that an organization has in tables, as text, over one connection."""
    queries = {
        table: f"SELECT * FROM {table} WHERE {'id' if table == 'organizations' else 'organization_id'} = ?"
        for table in tables
    }
    if CHOICE.server is not None:
        return finished(_contents(gateway.database_url, queries, organization_id))
    with closing(sqlite3.connect(gateway.database, timeout=30)) as connection:
        return {
            table: sorted(map(repr, connection.execute(query, (organization_id,)).fetchall()))
            for table, query in queries.items()
        }


async def _contents(url: str, queries: Mapping[str, str], organization_id: str) -> dict[str, list[str]]:
    connection = await _connected(url)
    try:
        return {
            table: sorted(
                repr(tuple(row)) for row in await connection.fetch(_numbered(query), organization_id)
            )
            for table, query in queries.items()
        }
    finally:
        await connection.close()
