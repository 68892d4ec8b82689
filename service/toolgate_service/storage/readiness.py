"""Whether the database can be worked with right now (decisions §3, §12)."""

import asyncio
import logging
import sqlite3

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.clock import utcnow
from toolgate_service.errors import StorageFault
from toolgate_service.storage.database import Database, now
from toolgate_service.storage.outage import OUTAGE

logger = logging.getLogger("toolgate.gateway")

#: seconds that the clocks of this machine and of the database may differ
MAX_SKEW = 5
#: seconds until a database that does not answer is called unavailable
PATIENCE = 2
#: seconds for which an answer is given again: whoever asks for it in masses does not cost the writers their turns
REMEMBERED = 1

_READ = text("SELECT count(*) FROM (SELECT 1 FROM organizations LIMIT 1) AS found")
#: what a gateway says that is about to end
LEAVING = "shutting down"
#: changes nothing, and is refused wherever a change would be: a full turn of a writer without a sync
_WRITE = text("UPDATE organizations SET name = name WHERE slug = ''")


class Readiness:
    """Looks at the database, once for everybody who asks at the same moment.

    Attributes:
        leaving: the gateway is about to end: balancers are to go elsewhere, whatever the database says.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.leaving = False
        self._look: asyncio.Task[str | None] | None = None
        #: what the log was told last; None while all is well
        self._said: str | None = None
        self._forgotten = 0.0

    async def problem(self) -> str | None:
        """Return what keeps the gateway from working; None when nothing does."""
        loop = asyncio.get_running_loop()
        if self._look is None or (self._look.done() and loop.time() > self._forgotten):
            self._look = loop.create_task(self._problem())
            self._forgotten = loop.time() + REMEMBERED
        # Not cut off when nobody waits any longer: a statement under way ends by itself, and the next who asks waits
        # for the same one.
        done, _ = await asyncio.wait({self._look}, timeout=PATIENCE)
        if not done:
            problem = f"The database did not answer within {PATIENCE} seconds"
            self._tell(problem)
            return problem
        return self._look.result()

    async def stop(self) -> None:
        """Let a look that is under way end."""
        if self._look is not None:
            await asyncio.wait({self._look})

    async def _problem(self) -> str | None:
        doing = "read"
        try:
            async with self._database.reading() as session:
                behind = skew(session)
                await (await session.connection()).execute(_READ)
            doing = "written"
            async with self._database.writing() as session:
                await (await session.connection()).execute(_WRITE)
        except Exception as failed:  # noqa: BLE001 - whatever it is, the gateway cannot work
            problem = f"The database cannot be {doing}"
            self._tell(problem, failed)
            return problem
        if behind > MAX_SKEW:
            self._tell("The database's clock and this machine's differ")
            return f"The database's clock and this machine's differ by {behind:.0f} seconds"
        self._tell(None)
        OUTAGE.ended()
        return None

    def _tell(self, problem: str | None, failed: Exception | None = None) -> None:
        """Write a line when something has changed: a balancer asks every second, for as long as it lasts."""
        said, self._said = self._said, problem
        if problem == said:
            return
        if problem is None:
            logger.info("The database can be worked with again")
        elif failed is None:
            logger.error("%s", problem)
        elif isinstance(failed, DBAPIError | sqlite3.OperationalError | StorageFault):
            # It is away, locked or full: the driver's one line says all there is to say.
            why = getattr(failed, "orig", None) or failed
            logger.error("%s: %s", problem, str(why).partition("\n")[0])
        else:
            logger.error("%s", problem, exc_info=failed)


def skew(session: AsyncSession) -> float:
    """Return by how many seconds the database's clock and this machine's differ, at the session's beginning."""
    return abs((now(session) - utcnow()).total_seconds())
