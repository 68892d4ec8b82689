"""Hearing what other gateways announce on PostgreSQL, over a connection of its own.

A listener that was cut off without a word would not know: it also sends news to itself, and what does not come back is
a connection that hears nothing. That is also how a pooler in between is found out that gives each transaction another
connection of the server.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable

from toolgate_service.storage.notices import CHANNEL
from toolgate_service.storage.postgres import PostgresDatabase
from toolgate_service.storage.postgres_connection import COMMIT_FROM_MEMORY, DRIVER_FAULTS

logger = logging.getLogger("toolgate.gateway")

#: seconds between two words to itself, and until one must have come back
KEEPALIVE = 3.0
ECHO = 2.0
#: seconds, at most, before another connection is made; each time in vain doubles them
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0

#: What a listener sends to itself need not survive the server.
_ECHO = f"SELECT pg_notify($1, '') WHERE {COMMIT_FROM_MEMORY}"


class Listener:
    """Listens as long as the gateway runs, and makes a new connection when one is lost.

    Args:
        database: where.
        heard: is called with every notice, on the event loop; it must not wait.
        turned: is called when it begins to hear (True) and when it has stopped (False). In between notices may have been
            missed either way.
    """

    def __init__(
        self, database: PostgresDatabase, heard: Callable[[str], None], turned: Callable[[bool], None]
    ) -> None:
        self._database = database
        self._heard = heard
        self._turned = turned
        self._hears = False
        self._is_told = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    @property
    def is_connected(self) -> bool:
        """Whether notices of other gateways arrive."""
        return self._hears

    async def stop(self) -> None:
        """Disconnect."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._listen()
            except DRIVER_FAULTS as error:
                self._tell_why(type(error).__name__)
            except Exception:
                logger.exception("news of other gateways cannot be listened to; the gateway tries again")
            if self._hears:
                pause = FIRST_PAUSE
                self._turn(hears=False)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load, guards nothing
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _listen(self) -> None:
        """Listen until the connection is lost.

        Raises:
            OSError: it was lost, or hears nothing.
        """
        connection = await self._database.connect()
        try:
            lost, echo = asyncio.Event(), asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, lambda *notice: self._heard(str(notice[-1])))
            own = f"{CHANNEL}_{secrets.token_hex(8)}"
            await connection.add_listener(own, lambda *_: echo.set())
            while True:
                echo.clear()
                async with asyncio.timeout(ECHO):
                    await connection.execute(_ECHO, own)
                    await echo.wait()
                if not self._hears:
                    self._turn(hears=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), KEEPALIVE)
                    raise ConnectionResetError("the connection has ended")
        finally:
            connection.terminate()

    def _turn(self, *, hears: bool) -> None:
        self._hears = hears
        if hears and self._is_told:
            self._is_told = False
            logger.info("news of other gateways is heard again")
        self._turned(hears)

    def _tell_why(self, why: str) -> None:
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "news of other gateways is not heard (%s); until it is, whoever waits looks for it", why
            )
