"""End sessions of replicas that froze in the middle of a statement and keep others waiting for their locks.

The server itself ends a write transaction that is idle between two statements. The driver sends a new statement in two
steps, and between them the server counts the session as active, without any time-out before PostgreSQL 17. The same holds
for a session whose client does not read the answer, and a read transaction may be idle for much longer. Every replica therefore looks
twice a second for such sessions of its own role; a start that migrates looks while it waits for a table.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolgate_service.storage.postgres_connection import APPLICATION, DRIVER_FAULTS, EXPORT, IDLE_IN_WRITE

if TYPE_CHECKING:
    from toolgate_service.storage.postgres import PostgresDatabase

logger = logging.getLogger("toolgate.gateway")

#: seconds between two looks
INTERVAL = 0.5
#: seconds until an answer is given up, and until another connection is made
SILENCE = 5.0
PAUSE = 2.0

#: application names of sessions that may not be idle in a transaction while others wait for their locks. The rows of an
#: export may be read slowly, unless a migration waits.
IDLE_SESSIONS: Sequence[str] = (APPLICATION,)
IDLE_SESSIONS_IN_MIGRATION: Sequence[str] = (APPLICATION, EXPORT)

# First what is cheap: nearly always no session is in such a state, and no lock is looked at.
_END_STALLED = f"""
WITH stalled AS MATERIALIZED (
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name LIKE '{APPLICATION}%'
      AND pid <> pg_backend_pid() AND wait_event_type = 'Client' AND xact_start IS NOT NULL
      AND (state = 'active' OR state = 'idle in transaction' AND application_name = ANY($1::text[]))
      AND state_change < clock_timestamp() - interval '{IDLE_IN_WRITE} ms'
)
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM stalled
WHERE EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND stalled.pid = ANY(pg_blocking_pids(pg_locks.pid)))
"""  # noqa: S608 - constants


class StalledSessions:
    """Ends stalled sessions between `start` and `stop`.

    Args:
        database: where.
        interval: seconds between two looks.
        idle: application names of the sessions that are also ended when they are idle in a transaction.
    """

    def __init__(
        self, database: "PostgresDatabase", interval: float = INTERVAL, idle: Sequence[str] = IDLE_SESSIONS
    ) -> None:
        self._database = database
        self._interval = interval
        self._idle = idle
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, and disconnect."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            # A database that is away is logged by whoever needs it.
            with contextlib.suppress(*DRIVER_FAULTS):
                await self._watch()
            await asyncio.sleep(PAUSE)

    async def _watch(self) -> None:
        connection = await self._database.connect(SILENCE)
        try:
            while True:
                ended = await connection.fetchval(_END_STALLED, self._idle)
                if ended:
                    logger.warning(
                        "%d database sessions of a replica that stopped responding were ended: others waited for their locks",
                        ended,
                    )
                await asyncio.sleep(self._interval)
        finally:
            connection.terminate()
