"""End sessions of replicas that froze in the middle of a statement and keep others waiting for their locks.

The server itself ends a transaction that is idle between two statements. The driver sends a new statement in two steps,
and between them the server counts the session as active, without any time-out before PostgreSQL 17. The same holds for a
session whose answer nobody reads. Every replica therefore looks twice a second for such sessions of its own role.
"""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import asyncpg

from toolgate_service.storage.postgres_connection import IDLE_IN_WRITE

if TYPE_CHECKING:
    from toolgate_service.storage.postgres import PostgresDatabase

logger = logging.getLogger("toolgate.gateway")

#: seconds between two looks
INTERVAL = 0.5
#: seconds until an answer is given up, and until another connection is made
SILENCE = 5.0
PAUSE = 2.0

# First what is cheap: nearly always no session is in such a state, and no lock is looked at.
_END_STALLED = f"""
WITH stalled AS MATERIALIZED (
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = 'toolgate'
      AND pid <> pg_backend_pid() AND state = 'active' AND wait_event_type = 'Client' AND xact_start IS NOT NULL
      AND state_change < clock_timestamp() - interval '{IDLE_IN_WRITE} ms'
)
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM stalled
WHERE EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND stalled.pid = ANY(pg_blocking_pids(pg_locks.pid)))
"""  # noqa: S608 - constants


class StalledSessions:
    """Ends stalled sessions as long as the gateway runs.

    Args:
        database: where.
    """

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
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
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await self._watch()
            await asyncio.sleep(PAUSE)

    async def _watch(self) -> None:
        connection = await self._database.connect(SILENCE)
        try:
            while True:
                ended = await connection.fetchval(_END_STALLED)
                if ended:
                    logger.warning(
                        "%d database sessions of a replica that stopped responding were ended: others waited for their locks",
                        ended,
                    )
                await asyncio.sleep(INTERVAL)
        finally:
            connection.terminate()
