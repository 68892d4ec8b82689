"""Detect a connection pooler between the gateway and PostgreSQL that does not keep one backend for each client.

The gateway needs what belongs to a session: LISTEN, prepared statements and session settings. PgBouncer keeps them in
session mode. In transaction and statement mode they are lost, or reach other clients of the pool.
"""

import asyncio
import secrets
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from toolgate_service.errors import StorageError

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection, Connector

#: seconds for the whole probe
TIMEOUT = 10.0
#: A pooler that hands out its servers in turn may give two clients different ones a few times.
ROUNDS = 3

CURE = (
    "set pool_mode = session for this database (PgBouncer: pool_mode in [databases] or [pgbouncer]), or connect to "
    "PostgreSQL directly"
)

#: SQLSTATE of a statement that was prepared on another backend, or that is prepared there already
_FOREIGN_STATEMENT = frozenset({"26000", "42P05"})
#: in the message with which PgBouncer refuses a transaction block and closes the connection
_NO_TRANSACTIONS = "statement pooling mode"

_MARK = "toolgate.probe"


class _Session(NamedTuple):
    """The backend that served a transaction, and the session setting found there."""

    pid: int
    mark: str


async def refuse_pooling(connector: "Connector") -> None:
    """Refuse a pooler in transaction or statement mode.

    Raises:
        StorageError: the pooler does not keep a backend for each client, or has too few connections.
        OSError: the server cannot be reached.
        asyncpg.PostgresError: the server refuses the connection.
    """
    first = await connector.connect(timeout=TIMEOUT, command_timeout=TIMEOUT, statement_cache_size=0)
    try:
        async with asyncio.timeout(TIMEOUT):
            await _probe(connector, first)
    except asyncpg.PostgresError as error:
        if error.sqlstate in _FOREIGN_STATEMENT:
            raise _refusal("transaction") from None
        if _NO_TRANSACTIONS in str(error):
            raise _refusal("statement") from None
        raise
    except TimeoutError:
        raise StorageError(
            f"a second connection to the PostgreSQL database of TOOLGATE_DATABASE_URL was not served within "
            f"{TIMEOUT:.0f} seconds: if a pooler is in between, its pool is too small; allow it 40 connections for "
            "each gateway process (PgBouncer: default_pool_size)"
        ) from None
    finally:
        first.terminate()


async def _probe(connector: "Connector", first: "Connection") -> None:
    mark = secrets.token_hex(8)
    async with first.transaction():
        seen = await _session(first)
        await first.execute(f"SET {_MARK} = '{mark}'")
    mine = _Session(seen.pid, mark)
    second = await connector.connect(timeout=TIMEOUT, command_timeout=TIMEOUT, statement_cache_size=0)
    try:
        for _ in range(ROUNDS):
            async with second.transaction():
                other = await _session(second)
                # Both clients are connected: a backend that serves both belongs to neither.
                if other.pid == mine.pid or other.mark == mark:
                    raise _refusal("transaction")
                async with first.transaction():
                    if await _session(first) != mine:
                        raise _refusal("transaction")
    finally:
        second.terminate()


async def _session(connection: "Connection") -> _Session:
    row = await connection.fetchrow(
        f"SELECT pg_backend_pid(), coalesce(current_setting('{_MARK}', true), '')"
    )
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return _Session(*row)


def _refusal(mode: str) -> StorageError:
    return StorageError(
        f"TOOLGATE_DATABASE_URL leads to PostgreSQL through a connection pooler in {mode} mode, in which LISTEN, "
        f"prepared statements and session settings do not work; {CURE}"
    )
