"""Log lines about a database that cannot be used: one when it begins for a kind of work, one when it has ended.

A balancer, agents and background jobs repeat what failed many times a second for as long as an outage lasts.
"""

import logging
from collections import Counter

from toolgate_service.errors import StorageFault

logger = logging.getLogger("toolgate.gateway")


class OutageLog:
    """Failures of the database since it was last known to work, in one process."""

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()

    def failed(self, work: str, error: Exception) -> None:
        """Log the first failure of a kind of work at ERROR, and count each further one.

        Args:
            work: plural name of what failed, for instance `"requests"`.
            error: logged with its traceback unless it is a `StorageFault`, whose message is enough.
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
        """Log what failed in the meantime, if anything did: the database works."""
        if self._failures:
            failures = ", ".join(f"{count} {work}" for work, count in sorted(self._failures.items()))
            self._failures.clear()
            logger.info("the database works again; failed meanwhile: %s", failures)


#: of this process
OUTAGE = OutageLog()
