"""Readiness check of the database, and logging of database outages."""

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

#: maximum difference in seconds between the clocks of this machine and of the database
MAX_SKEW = 5
#: seconds without a response after which the database is considered unavailable
RESPONSE_TIMEOUT = 2
#: seconds for which a check's result is reused, so that frequent health checks do not delay writers
CACHE_SECONDS = 1

_READ = text("SELECT count(*) FROM (SELECT 1 FROM organizations LIMIT 1) AS found")
#: status that a gateway reports while it shuts down
SHUTTING_DOWN = "shutting down"
#: Statement that takes the write lock but changes no row. It fails in the same cases as a real change and needs no sync
#: to disk.
_WRITE = text("UPDATE organizations SET name = name WHERE slug = ''")

#: exceptions for a failed or full disk, and for a database that another process locked for too long
STORAGE_FAULTS = (StorageFault, sqlite3.OperationalError, OperationalError, PoolTimeout)


class OutageLog:
    """Logs database outages of this process without repetition.

    During an outage, load balancers, agents and background jobs repeat failed requests many times per second. So only
    the first failure of each kind of work and the end of the outage are logged.
    """

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()

    def failed(self, work: str, error: Exception) -> None:
        """Log the first failure of a kind of work at level ERROR; only count the further failures.

        Args:
            work: Plural name of the work that failed, for instance `"requests"`.
            error: The exception, logged with its traceback. A `StorageFault` is logged without one, since its message
                is sufficient.
        """
        self._failures[work] += 1
        if self._failures[work] > 1:
            logger.debug("%s failed again: %s", work, error)
            return
        unexpected = None if isinstance(error, StorageFault) else error
        logger.error(
            "%s fail: %s; further failures are counted until the database works again",
            work,
            error,
            exc_info=unexpected,
        )

    def ended(self) -> None:
        """Log the end of the outage, if there was one, and the number of failures during it."""
        if self._failures:
            failures = ", ".join(f"{count} {work}" for work, count in sorted(self._failures.items()))
            self._failures.clear()
            logger.info("the database works again; failed meanwhile: %s", failures)


#: outage log of this process
OUTAGE = OutageLog()


class Readiness:
    """Readiness check of the database. Concurrent callers share one check.

    Attributes:
        is_shutting_down: Whether the gateway shuts down. It then reports that it is not ready.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_shutting_down = False
        self._check_task: asyncio.Task[str | None] | None = None
        #: the problem that was logged last; None if the database worked
        self._logged: str | None = None
        self._expires_at = 0.0

    async def problem(self) -> str | None:
        """Return the problem that prevents the gateway from using the database, or None."""
        loop = asyncio.get_running_loop()
        if self._check_task is None or (self._check_task.done() and loop.time() > self._expires_at):
            self._check_task = loop.create_task(self._check())
            self._expires_at = loop.time() + CACHE_SECONDS
        # After a timeout the check continues: its statement has its own timeout, and the next caller waits for it too.
        done, _ = await asyncio.wait({self._check_task}, timeout=RESPONSE_TIMEOUT)
        if not done:
            problem = f"The database did not answer within {RESPONSE_TIMEOUT} seconds"
            self._log_change(problem)
            return problem
        return self._check_task.result()

    async def stop(self) -> None:
        """Wait for the end of the running check, if there is one."""
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
        """Log a problem only if it changed since the last check, since load balancers check every second."""
        logged, self._logged = self._logged, problem
        if problem == logged:
            return
        if problem is None:
            logger.info("The database can be worked with again")
        elif failed is None:
            logger.error("%s", problem)
        elif isinstance(failed, DBAPIError | sqlite3.OperationalError | StorageFault):
            # The database is unreachable, locked or full. The first line of the driver's message is sufficient.
            why = getattr(failed, "orig", None) or failed
            logger.error("%s: %s", problem, str(why).partition("\n")[0])
        else:
            logger.error("%s", problem, exc_info=failed)


def skew(session: AsyncSession) -> float:
    """Return the absolute difference in seconds between the clocks of the database and of this machine.

    Call it directly after the session was opened, because the session read the database's clock at that moment.
    """
    return abs((now(session) - utcnow()).total_seconds())
