"""In-memory queue that sends e-mails in the background, with retries."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from toolgate_service.mail.templates import Email

#: backoff in seconds before each retry
BACKOFF = (2.0, 15.0, 60.0, 300.0)
#: maximum number of e-mails in the queue; further e-mails are rejected
MAX_QUEUED = 500
#: maximum number of e-mails that are sent at the same time
CONCURRENCY = 2
#: maximum time in seconds that the shutdown waits for queued e-mails
SHUTDOWN_SECONDS = 3.0

MakeEmail: TypeAlias = Callable[[], Awaitable[Email | None]]

logger = logging.getLogger("toolgate.mail")


class NotSent(Exception):
    """An e-mail was not sent. The message contains the reason without secrets.

    Attributes:
        final: Whether the failure is permanent, so that a retry is useless.
    """

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class Mailer(Protocol):
    """Interface of a transport that sends e-mails."""

    async def send(self, email: Email) -> None:
        """Send one e-mail.

        Raises:
            NotSent: The e-mail was not sent.
        """


class MailQueue:
    """Queue that sends e-mails in the background, so that requests do not wait. Failures are logged.

    Attributes:
        results: Number of e-mails by result (`sent` or `given_up`), for the metrics.
    """

    def __init__(self, mailer: Mailer, backoff: Sequence[float] = BACKOFF) -> None:
        self.results = Counter[str](sent=0, given_up=0)
        self._mailer = mailer
        self._backoff = backoff
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(CONCURRENCY)

    @property
    def pending(self) -> int:
        """Number of e-mails in the queue."""
        return len(self._tasks)

    def send(self, email: Email) -> bool:
        """Add an e-mail to the queue. If the queue is full, log an error and return False."""

        async def make() -> Email:
            return email

        added = self.make_and_send(make)
        if not added:
            logger.error("%r is not sent: %d are on their way already", email, MAX_QUEUED)
        return added

    def make_and_send(self, make: MakeEmail) -> bool:
        """Call `make` in the background and send the e-mail that it returns, if any.

        Return False, without calling `make`, if the queue is full.
        """
        if len(self._tasks) >= MAX_QUEUED:
            return False
        task = asyncio.create_task(self._process(make))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """Wait at most `SHUTDOWN_SECONDS` for queued e-mails, and log the number of e-mails that were not sent."""
        if not self._tasks:
            return
        _, left = await asyncio.wait(self._tasks, timeout=SHUTDOWN_SECONDS)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            logger.error("%d mails were not sent before the gateway stopped", len(left))

    async def _process(self, make: MakeEmail) -> None:
        try:
            email = await make()
            if email is not None:
                await self._send_with_retries(email)
        except Exception:
            logger.exception("a mail could not be written")

    async def _send_with_retries(self, email: Email) -> None:
        for pause in (*self._backoff, None):
            failure = await self._attempt(email)
            if failure is None:
                self.results["sent"] += 1
                return
            if failure.final or pause is None:
                self.results["given_up"] += 1
                logger.error("%r is given up: %s", email, failure)
                return
            logger.warning("%r did not go, another attempt follows: %s", email, failure)
            await asyncio.sleep(pause)

    async def _attempt(self, email: Email) -> NotSent | None:
        try:
            async with self._slots:
                await self._mailer.send(email)
        except NotSent as failure:
            return failure
        return None
