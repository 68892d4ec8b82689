"""Readiness check of the database, and log messages about database outages."""

import asyncio
import logging
import sqlite3
from collections import Counter

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.clock import utcnow
from toolgate_service.core.errors import StorageFault
from toolgate_service.db.database import Database, now

logger = logging.getLogger("toolgate.gateway")

#: maximum difference in seconds between the clock of this machine and the clock of the database
MAX_SKEW = 5
#: seconds without a response after which the readiness check reports the database as unavailable
RESPONSE_TIMEOUT = 2
#: seconds for which the result of a check is reused, so that frequent readiness requests do not delay write
#: transactions
CACHE_SECONDS = 1

_READ = text("SELECT count(*) FROM (SELECT 1 FROM organizations LIMIT 1) AS found")
#: status that the readiness check reports while the gateway shuts down
SHUTTING_DOWN = "shutting down"
#: statement that takes the write lock but changes no row: it fails if a real change would fail, but needs no sync to
#: disk
_WRITE = text("UPDATE organizations SET name = name WHERE slug = ''")

#: exceptions for storage failures: an unavailable database, a failed or full disk, or a database that another process
#: locked for too long
STORAGE_FAULTS = (StorageFault, sqlite3.OperationalError, OperationalError, PoolTimeout)


class OutageLog:
    """Log of database outages in this process, without repeated messages.

    During an outage, load balancers, agents and background jobs repeat failed requests many times per second. The log
    therefore contains only the first failure of each kind of work, and the end of the outage.
    """

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()

    def failed(self, work: str, error: Exception) -> None:
        """Log the first failure of a kind of work at the level ERROR, and only count further failures.

        `work` is the plural name of the work, for example `"requests"`. A `StorageFault` is logged without traceback,
        because its message is sufficient.
        """
        self._failures[work] += 1
        if self._failures[work] > 1:
            logger.debug("%s failed again: %s", work, error)
            return
        unexpected = None if isinstance(error, StorageFault) else error
        logger.error(
            "%s fail because of a database error: %s; until the database works again, the gateway counts "
            "further failures and does not log them",
            work,
            error,
            exc_info=unexpected,
        )

    def ended(self) -> None:
        """Log that the outage is over and how many failures there were. Do nothing if there was no outage."""
        if self._failures:
            failures = ", ".join(f"{count} {work}" for work, count in sorted(self._failures.items()))
            self._failures.clear()
            logger.info("the database works again; numbers of failures during the outage: %s", failures)


#: log of database outages in this process
OUTAGE = OutageLog()


class Readiness:
    """Readiness check of the database. Concurrent callers share one check.

    Attributes:
        is_shutting_down: True while the gateway shuts down. It then reports that it is not ready.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_shutting_down = False
        self._check_task: asyncio.Task[str | None] | None = None
        #: problem that was logged last; None if the last check found no problem
        self._logged: str | None = None
        self._expires_at = 0.0

    async def problem(self) -> str | None:
        """Return the problem that prevents the gateway from using the database; None if there is none."""
        loop = asyncio.get_running_loop()
        if self._check_task is None or (self._check_task.done() and loop.time() > self._expires_at):
            self._check_task = loop.create_task(self._check())
            self._expires_at = loop.time() + CACHE_SECONDS
        # Let the check continue after the timeout: its statements have their own timeout, and the next caller waits for
        # the same check.
        done, _ = await asyncio.wait({self._check_task}, timeout=RESPONSE_TIMEOUT)
        if not done:
            problem = f"The database did not respond within {RESPONSE_TIMEOUT} seconds"
            self._log_change(problem)
            return problem
        return self._check_task.result()

    async def stop(self) -> None:
        """Wait until the running check ends, if there is one."""
        if self._check_task is not None:
            await asyncio.wait({self._check_task})

    async def _check(self) -> str | None:
        doing = "read"
        try:
            async with self._database.reading() as session:
                difference = skew(session)
                await (await session.connection()).execute(_READ)
            doing = "written"
            async with self._database.writing() as session:
                await (await session.connection()).execute(_WRITE)
        except Exception as failed:  # noqa: BLE001 - any error means that the gateway cannot work
            problem = f"The database cannot be {doing}"
            self._log_change(problem, failed)
            return problem
        if difference > MAX_SKEW:
            self._log_change("The database's clock and this machine's differ")
            return f"The database's clock and this machine's differ by {difference:.0f} seconds"
        self._log_change(None)
        OUTAGE.ended()
        return None

    def _log_change(self, problem: str | None, failed: Exception | None = None) -> None:
        """Log a problem or its end, but only if the result of the check has changed.

        Otherwise, the log would contain a message every second, because load balancers request a check that often.
        """
        logged, self._logged = self._logged, problem
        if problem == logged:
            return
        if problem is None:
            logger.info("The database is available again")
        elif failed is None:
            logger.error("%s", problem)
        elif isinstance(failed, DBAPIError | sqlite3.OperationalError | StorageFault):
            # Log only the first line of the driver's message, which is sufficient for an unreachable, locked or full
            # database.
            why = getattr(failed, "orig", None) or failed
            logger.error("%s: %s", problem, str(why).partition("\n")[0])
        else:
            logger.error("%s", problem, exc_info=failed)


def skew(session: AsyncSession) -> float:
    """Return the absolute difference in seconds between the clocks of the database and of this machine.

    Call this function directly after the session was opened, because the clock of the database was read at that moment.
    """
    return abs((now(session) - utcnow()).total_seconds())
