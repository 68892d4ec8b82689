"""A PostgreSQL server that lets transactions lose: it raises what it raises where two of them got into each other's way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from support.databases import finished

SERIALIZATION, DEADLOCK = "40001", "40P01"
#: ends the connection instead of the transaction: what became of a commit that was under way nobody knows
CUT_OFF = "the connection"
FOR_EVER = 1_000_000

# What a sequence has given is not taken back with the transaction: it tells one attempt from the next.
_LOSE = """
CREATE SEQUENCE IF NOT EXISTS losses;
SELECT setval('losses', 1, false);
CREATE OR REPLACE FUNCTION lose(times int, how text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('losses') > times THEN RETURN true; END IF;
    IF how = 'the connection' THEN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN true; END IF;
    RAISE EXCEPTION 'lost' USING ERRCODE = how;
END $$;
CREATE OR REPLACE FUNCTION lose_writing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM lose(TG_ARGV[0]::int, TG_ARGV[1]); RETURN NULL; END $$;
"""
_AT_ONCE = """
CREATE TRIGGER lost AFTER INSERT OR UPDATE ON {table}
FOR EACH ROW EXECUTE FUNCTION lose_writing('{times}', '{how}')
"""
_AT_COMMIT = """
CREATE CONSTRAINT TRIGGER lost AFTER INSERT OR UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION lose_writing('{times}', '{how}')
"""
_READING = """
ALTER TABLE {table} RENAME TO the_real_one;
CREATE VIEW {table} AS SELECT * FROM the_real_one WHERE lose({times}, '{how}');
"""


class Losing:
    """What loses.

    Args:
        url: the database's.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def attempts(self) -> int:
        """How often the place was reached, in vain and not; more than once, perhaps, in a transaction of many rows."""
        return int(self._do("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM losses"))

    def _do(self, *statements: str) -> Any:
        async def do() -> Any:
            connection = await asyncpg.connect(self._url)
            try:
                for statement in statements[:-1]:
                    await connection.execute(statement)
                return await connection.fetchval(statements[-1])
            finally:
                await connection.close()

        return finished(do())


@contextmanager
def losing_writes(
    url: str, table: str, times: int, *, at_commit: bool = False, how: str = SERIALIZATION
) -> Iterator[Losing]:
    """Let so many transactions lose that write to a table: as they do, or once they commit."""
    losing = Losing(url)
    trigger = (_AT_COMMIT if at_commit else _AT_ONCE).format(table=table, times=times, how=how)
    losing._do(_LOSE, trigger, "SELECT 1")
    try:
        yield losing
    finally:
        losing._do(f"DROP TRIGGER lost ON {table}", "SELECT 1")


@contextmanager
def losing_reads(url: str, table: str, times: int) -> Iterator[Losing]:
    """Let so many transactions lose that read one row of a table."""
    losing = Losing(url)
    losing._do(_LOSE, _READING.format(table=table, times=times, how=SERIALIZATION), "SELECT 1")
    try:
        yield losing
    finally:
        losing._do(f"DROP VIEW {table}", f"ALTER TABLE the_real_one RENAME TO {table}", "SELECT 1")
