"""Monthly partitions of the table `log_entries` on PostgreSQL.

A maintenance job creates partitions for the coming months, and drops partitions whose entries are older than their
retention. An entry whose month has no partition is stored in the partition `DEFAULT`. This happens if the job did not
run for months, or after an upgrade from a version without partitions. The job then turns `DEFAULT` into a partition
with bounds, and creates a new and empty `DEFAULT`.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from toolgate_service.core.clock import month_start
from toolgate_service.core.errors import StorageFault
from toolgate_service.core.plans import UNLIMITED, longest
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.db.postgres_connection import DRIVER_FAULTS, WRITE_SETTINGS

if TYPE_CHECKING:
    from toolgate_service.db.postgres_connection import Connection

logger = logging.getLogger("toolgate.gateway")

#: function that returns the retention of log entries in the production environment, in days (-1 means no limit); its
#: arguments are the plan of the organization, the time of the last change of the plan, and the retention of the
#: previous plan in days
RetentionDays: TypeAlias = Callable[[str, datetime | None, int | None], int]

#: name of the partition for entries that are older than the first monthly partition
PAST = "log_entries_past"
#: name of the partition for entries whose month has no partition
DEFAULT = "log_entries_default"

#: number of months for which partitions exist in advance, including the current month
MONTHS_AHEAD = 3

#: A gateway that changes partitions holds a lock in a separate transaction. The server ends this transaction if it is
#: idle for LOCK_IDLE_SECONDS. To prevent this, the gateway sends a statement every LOCK_KEEPALIVE_SECONDS.
LOCK_IDLE_SECONDS = 60.0
LOCK_KEEPALIVE_SECONDS = 15.0
#: maximum number of attempts to lock the log table in order to attach a partition
ATTACH_ATTEMPTS = 60
#: maximum number of attempts to lock the log table in order to drop partitions
DROP_ATTEMPTS = 10
#: seconds between two attempts to lock the log table
LOCK_PAUSE = 0.5
#: timeout in seconds for statements that read a very large table
READ_SECONDS = 6 * 3600.0
#: maximum number of entries in a dropped partition that are counted exactly; above this number, the estimate of the
#: server is used
MAX_COUNTED = 1_000_000

# The lock belongs to a transaction in a separate connection, which stays open while other transactions change the
# partitions. A session-level lock is not suitable, because behind a connection pooler it could remain after the gateway
# disconnects.
_LOCK_PARTITIONS = "SELECT pg_try_advisory_xact_lock(hashtextextended('months of the log', 0))"
# The lock timeout is short, because while one statement waits for the lock of a table, all later statements on the
# table must wait too. It is also shorter than `deadlock_timeout` (one second), so the wait ends before the server looks
# for deadlocks. If a gateway stops responding while it holds a table lock, the idle timeout for write transactions ends
# its transaction.
_SHORT_LOCK_WAIT = f"SELECT {WRITE_SETTINGS} || set_config('lock_timeout', '500ms', true)"
# Lock both tables, because attaching a partition changes a foreign key to `agents`. Transactions that write log entries
# take the locks in the same order, so deadlocks are impossible.
_LOCK_AGENTS_AND_LOG = "LOCK TABLE agents, log_entries IN ACCESS EXCLUSIVE MODE"
_LOCK_LOG = "LOCK TABLE log_entries IN ACCESS EXCLUSIVE MODE"

_NOW = "SELECT clock_timestamp() AS moment"
_PARTITIONS = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), c.reltuples::bigint
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'log_entries'::regclass
"""
_BOUNDS = re.compile(r"FROM \((?:MINVALUE|'([^']*)')\) TO \('([^']*)'\)")
_HAS_DEFAULT_ENTRIES = f"SELECT EXISTS (SELECT 1 FROM {DEFAULT} WHERE created_at < $1)"  # noqa: S608 - the inserted text is a constant
_NEWEST_DEFAULT_ENTRY = f"SELECT max(created_at) FROM {DEFAULT}"  # noqa: S608 - the inserted text is a constant
_NO_TIMEOUT = "SET LOCAL statement_timeout = 0"
_VALIDATE_BOUNDS = f"ALTER TABLE {DEFAULT} VALIDATE CONSTRAINT log_entries_bounds"
_DROP_BOUNDS = f"ALTER TABLE {DEFAULT} DROP CONSTRAINT IF EXISTS log_entries_bounds"
# Select the time of the latest plan change for each pair of current plan and previous retention. Of all organizations
# with this pair, the one that changed its plan last keeps its entries longest.
_RETENTIONS = """
SELECT plan, max(plan_changed_at), retention_days_before FROM organizations GROUP BY plan, retention_days_before
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """Partition of the log table that contains the entries of a period, usually of a month.

    Attributes:
        name: Name of the table.
        begins: Start of the period, inclusive; None if the period has no lower bound.
        ends: End of the period, exclusive.
        rows: Number of entries as estimated by the server; -1 if the server has no estimate.
    """

    name: str
    begins: datetime | None
    ends: datetime
    rows: int


async def make_months(database: PostgresDatabase) -> Sequence[str]:
    """Create the missing partitions for the current and the following months, and return the names of the new ones.

    Nothing is done while another gateway changes partitions.

    Raises:
        StorageFault: The server is unavailable, or another transaction holds a lock on the log table. The next run of
            the maintenance job tries again.
    """
    async with exclusive_access(database) as connection:
        if connection is None:
            return ()
        periods = missing_periods(await list_partitions(connection), await _server_time(connection))
        created: list[str] = []
        if periods and await _has_default_entries(connection, periods[-1][1]):
            created.append(await _attach_default(connection))
            periods = missing_periods(await list_partitions(connection), await _server_time(connection))
        for begins, ends in periods:
            async with _short_lock_waits(connection):
                created.append(await _create_partition(connection, begins, ends))
        return created


async def drop_months(
    database: PostgresDatabase, moment: datetime, retention_days: RetentionDays, test: int
) -> int:
    """Drop the oldest partitions if the retention of all their entries has ended. Return the number of dropped entries.

    Partitions without entries are dropped too. No partition is dropped before the retention of test entries has ended
    for all its entries: another job deletes expired test entries one by one, and subtracts their size from the stored
    size of the test log.

    Args:
        database: The database.
        moment: Current time.
        retention_days: Function that returns the retention of an organization's production entries in days.
        test: Retention of test entries in days.

    Raises:
        StorageFault: The server is unavailable, or another transaction holds a lock on the log table. The next run of
            the maintenance job tries again.
    """
    async with exclusive_access(database) as connection:
        if connection is None:
            return 0
        expired = await _expired(connection, moment, retention_days, test)
        rows = sum([await _count_rows(connection, partition) for partition in expired])
        if not rows and [partition.name for partition in expired] in ([], [PAST]):
            return 0
        for left in reversed(range(DROP_ATTEMPTS)):
            try:
                async with _short_lock_waits(connection):
                    await _drop(connection, expired, moment, retention_days, test)
            except asyncpg.LockNotAvailableError:
                if not left:
                    raise
                await asyncio.sleep(LOCK_PAUSE)
            else:
                break
        return rows


def missing_periods(partitions: Sequence[Partition], moment: datetime) -> Sequence[tuple[datetime, datetime]]:
    """Return the periods that need a new partition, as pairs of start and end.

    These are the months without a partition, among the `MONTHS_AHEAD` months that begin with the current month. If
    there is a gap between the last partition and the current month, the first period covers the whole gap.
    """
    last = partitions[-1].ends if partitions else None
    current = month_start(moment)
    months = [(month_start(moment, later), month_start(moment, later + 1)) for later in range(MONTHS_AHEAD)]
    needed = [(begins, ends) for begins, ends in months if last is None or begins >= last]
    # Cover the whole gap with one partition. It stays empty: entries in the gap would be in `DEFAULT`, and
    # `_attach_default` would already have turned `DEFAULT` into a partition that covers the gap.
    return needed if last is None or last >= current else [(last, current), *needed]


async def list_partitions(connection: "Connection") -> Sequence[Partition]:
    """Return all partitions of the log table except `DEFAULT`, oldest first."""
    found = [
        # The parsed bounds are in UTC, because PostgreSQL formats them in the time zone of the connection, which is
        # UTC.
        Partition(
            name, datetime.fromisoformat(begins) if begins else None, datetime.fromisoformat(ends), rows
        )
        for name, bounds, rows in await connection.fetch(_PARTITIONS)
        for begins, ends in _BOUNDS.findall(bounds)
    ]
    return sorted(found, key=lambda partition: partition.ends)


def sql_month(moment: datetime) -> str:
    """Format the start of a month, given as a moment, as an SQL literal in UTC. DDL does not accept parameters."""
    return f"'{moment.astimezone(UTC):%Y-%m-%d} 00:00+00'"


@asynccontextmanager
async def exclusive_access(database: PostgresDatabase) -> AsyncIterator["Connection | None"]:
    """Lock the partitions against changes by other gateways, and yield a connection with which to change them.

    If another gateway holds the lock, None is yielded instead.

    Raises:
        StorageFault: The server is unavailable, or a statement in the `with` block waited too long for the lock of a
            table.
    """
    try:
        async with AsyncExitStack() as stack:
            guard, connection = await _connect(stack, database), await _connect(stack, database)
            async with guard.transaction():
                await guard.execute(
                    f"SET LOCAL idle_in_transaction_session_timeout = '{LOCK_IDLE_SECONDS:.0f}s'"
                )
                is_locked = await guard.fetchval(_LOCK_PARTITIONS)
                async with _keep_alive(guard, connection):
                    yield connection if is_locked else None
    except DRIVER_FAULTS as error:
        # Omit the message of the driver, because it may contain values of rows, such as tool arguments.
        code = getattr(error, "sqlstate", None)
        raise StorageFault(f"PostgreSQL: {type(error).__name__}" + (f" {code}" if code else "")) from None


@asynccontextmanager
async def _keep_alive(guard: "Connection", connection: "Connection") -> AsyncIterator[None]:
    """Keep the transaction of `guard`, which holds the lock of the partitions, alive until the `with` block ends.

    If this transaction is lost, `connection` is terminated, so that it cannot change partitions without the lock.
    """

    async def keep() -> None:
        try:
            while True:
                await asyncio.sleep(LOCK_KEEPALIVE_SECONDS)
                await guard.execute("SELECT 1")
        except DRIVER_FAULTS:
            connection.terminate()

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _connect(stack: AsyncExitStack, database: PostgresDatabase) -> "Connection":
    connection = await database.connect()
    stack.callback(connection.terminate)
    return connection


@asynccontextmanager
async def _short_lock_waits(connection: "Connection") -> AsyncIterator[None]:
    """Run the `with` block in a transaction whose statements fail if they wait for a lock longer than 0.5 seconds."""
    async with connection.transaction():
        await connection.execute(_SHORT_LOCK_WAIT)
        yield


async def _server_time(connection: "Connection") -> datetime:
    moment: datetime = await connection.fetchval(_NOW)
    return moment


async def _create_partition(connection: "Connection", begins: datetime, ends: datetime) -> str:
    """Create the partition for a period and return its name. This function must run in a transaction.

    The table is first created and then attached, because `CREATE TABLE ... PARTITION OF` would lock the whole log
    table. While the table is attached, writers continue, and readers wait only until the server has verified that
    `DEFAULT` contains no entries of the period.
    """
    name = _partition_name(begins)
    await connection.execute(
        f"CREATE TABLE {name} (LIKE log_entries INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
    )
    await connection.execute(_attach_statement(name, begins, ends))
    return name


def _partition_name(begins: datetime) -> str:
    return f"log_entries_{begins:%Y_%m}"


def _attach_statement(name: str, begins: datetime | None, ends: datetime) -> str:
    first = "MINVALUE" if begins is None else sql_month(begins)
    return f"ALTER TABLE log_entries ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({sql_month(ends)})"


async def _has_default_entries(connection: "Connection", before: datetime) -> bool:
    """Return whether the partition `DEFAULT` contains entries that are older than `before`."""
    found: bool = await connection.fetchval(_HAS_DEFAULT_ENTRIES, before)
    return found


async def _attach_default(connection: "Connection") -> str:
    """Turn the partition `DEFAULT` into a partition with bounds, and return its new name.

    The server refuses to create a month's partition while `DEFAULT` contains entries of that month, and there may be
    too many entries to move. Instead, `DEFAULT` itself gets bounds. The server first validates them, while other
    transactions continue to write. Then the table is attached with its bounds and a new, empty `DEFAULT` is created,
    which locks the log table for milliseconds. The upper bound is the end of the next month. If the table contains a
    later entry, because the clock of a gateway was ahead, the upper bound is the end of the month of that entry.

    Raises:
        asyncpg.LockNotAvailableError: Another transaction held a lock on the log table for too long. Nothing has
            changed.
    """
    partitions = await list_partitions(connection)
    begins = partitions[-1].ends if partitions else None
    async with connection.transaction():
        await connection.execute(_NO_TIMEOUT)
        newest = await connection.fetchval(_NEWEST_DEFAULT_ENTRY, timeout=READ_SECONDS)
    ends = month_start(max(month_start(await _server_time(connection), 1), newest), 1)
    name = PAST if begins is None else _partition_name(begins)
    lower = "" if begins is None else f"created_at >= {sql_month(begins)} AND "
    async with _short_lock_waits(connection):
        await connection.execute(_DROP_BOUNDS)
        await connection.execute(
            f"ALTER TABLE {DEFAULT} ADD CONSTRAINT log_entries_bounds "
            f"CHECK ({lower}created_at < {sql_month(ends)}) NOT VALID"
        )
    try:
        async with _short_lock_waits(connection):
            await connection.execute(_NO_TIMEOUT)
            await connection.execute(_VALIDATE_BOUNDS, timeout=READ_SECONDS)
        await _exchange_default(connection, name, begins, ends)
    except BaseException:
        # Remove the constraint that limits the partition to the new bounds. Otherwise, `DEFAULT` would reject all
        # entries after the upper bound.
        with suppress(*DRIVER_FAULTS):
            async with _short_lock_waits(connection):
                await connection.execute(_DROP_BOUNDS)
        raise
    logger.info("moved the log entries until %s into the partition %s", f"{ends:%Y-%m}", name)
    return name


async def _exchange_default(
    connection: "Connection", name: str, begins: datetime | None, ends: datetime
) -> None:
    """Rename the table `DEFAULT`, attach it as a partition with bounds, and create a new, empty `DEFAULT`."""
    for left in reversed(range(ATTACH_ATTEMPTS)):
        try:
            async with _short_lock_waits(connection):
                await connection.execute(_LOCK_AGENTS_AND_LOG)
                await connection.execute(f"ALTER TABLE log_entries DETACH PARTITION {DEFAULT}")
                await connection.execute(f"ALTER TABLE {DEFAULT} RENAME TO {name}")
                await connection.execute(_attach_statement(name, begins, ends))
                await connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT log_entries_bounds")
                # Also create the partition of the following month, for later entries.
                await _create_partition(connection, ends, month_start(ends, 1))
                await connection.execute(f"CREATE TABLE {DEFAULT} PARTITION OF log_entries DEFAULT")
        except asyncpg.LockNotAvailableError:
            if not left:
                raise
            await asyncio.sleep(LOCK_PAUSE)
        else:
            return


async def _drop(
    connection: "Connection",
    expired: Sequence[Partition],
    moment: datetime,
    retention_days: RetentionDays,
    test: int,
) -> None:
    for partition in expired:
        # Prevent new entries in the partition, for example from `toolgate db copy`. The lock on the whole log table is
        # taken later, so that it is held only briefly.
        await connection.execute(f"LOCK TABLE {partition.name} IN SHARE MODE")
    # Select the expired partitions again, because an organization may meanwhile have changed to a plan with a longer
    # retention.
    names = [partition.name for partition in await _expired(connection, moment, retention_days, test)]
    dropped = [partition for partition in expired if partition.name in names]
    if not dropped:
        return
    await connection.execute(_LOCK_LOG)
    for partition in dropped:
        await connection.execute(f"DROP TABLE {partition.name}")
    # Create a partition for entries of the dropped months, because such entries may still arrive, for example from
    # `toolgate db copy`. In `DEFAULT`, they would prevent the creation of new partitions.
    end = sql_month(dropped[-1].ends)
    await connection.execute(
        f"CREATE TABLE {PAST} PARTITION OF log_entries FOR VALUES FROM (MINVALUE) TO ({end})"
    )


async def _expired(
    connection: "Connection", moment: datetime, retention_days: RetentionDays, test: int
) -> Sequence[Partition]:
    """Return the partitions that can be dropped: those before the oldest partition that must be kept."""
    days = longest(test, *(retention_days(*row) for row in await connection.fetch(_RETENTIONS)))
    ended = takewhile(
        # Never drop the newest partition (`[:-1]`), because the next new partition begins where it ends.
        lambda partition: partition.ends <= moment - timedelta(days=test),
        (await list_partitions(connection))[:-1],
    )
    expired = []
    for partition in ended:
        is_expired = days != UNLIMITED and partition.ends <= moment - timedelta(days=days)
        if not is_expired and await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {partition.name})"):  # noqa: S608 - the inserted text is the name of a partition
            break
        expired.append(partition)
    return expired


async def _count_rows(connection: "Connection", partition: Partition) -> int:
    if partition.rows >= MAX_COUNTED:
        return partition.rows
    rows: int = await connection.fetchval(f"SELECT count(*) FROM {partition.name}")  # noqa: S608 - the inserted text is the name of a partition
    return rows
