"""The post: letters go after the answer, are tried again, and leave a line in the log when they do not go."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from toolgate_service.mail.letters import Letter
from toolgate_service.mail.smtp import Mailer, NotSent

#: seconds between attempts
PAUSES = (2.0, 15.0, 60.0, 300.0)
#: letters on their way; more are refused
MOST = 500
#: letters handed to the server at the same time
AT_ONCE = 2
#: seconds that the gateway's end waits for letters on their way
GRACE = 3.0

Writing: TypeAlias = Callable[[], Awaitable[Letter | None]]

logger = logging.getLogger("toolgate.mail")


class Post:
    """Sends letters off the requests' path, in this process's memory.

    Attributes:
        ended: how many letters have, by how.
    """

    def __init__(self, mailer: Mailer, pauses: Sequence[float] = PAUSES) -> None:
        self.ended = Counter[str](sent=0, given_up=0)
        self._mailer = mailer
        self._pauses = pauses
        self._on_their_way: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(AT_ONCE)

    @property
    def on_their_way(self) -> int:
        """How many letters are."""
        return len(self._on_their_way)

    def send(self, letter: Letter) -> bool:
        """Take a letter; False when too many are on their way, which is logged."""

        async def written() -> Letter:
            return letter

        taken = self.write_and_send(written)
        if not taken:
            logger.error("%r is not sent: %d are on their way already", letter, MOST)
        return taken

    def write_and_send(self, writing: Writing) -> bool:
        """Take a letter that is still to be written, if at all; False when too many are on their way."""
        if len(self._on_their_way) >= MOST:
            return False
        task = asyncio.create_task(self._carry(writing))
        self._on_their_way.add(task)
        task.add_done_callback(self._on_their_way.discard)
        return True

    async def close(self) -> None:
        """Wait a moment for letters on their way; say how many did not go."""
        if not self._on_their_way:
            return
        _, left = await asyncio.wait(self._on_their_way, timeout=GRACE)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            logger.error("%d mails were not sent before the gateway stopped", len(left))

    async def _carry(self, writing: Writing) -> None:
        try:
            letter = await writing()
            if letter is not None:
                await self._deliver(letter)
        except Exception:
            logger.exception("a mail could not be written")

    async def _deliver(self, letter: Letter) -> None:
        for pause in (*self._pauses, None):
            failure = await self._attempt(letter)
            if failure is None:
                self.ended["sent"] += 1
                return
            if failure.final or pause is None:
                self.ended["given_up"] += 1
                logger.error("%r is given up: %s", letter, failure)
                return
            logger.warning("%r did not go, another attempt follows: %s", letter, failure)
            await asyncio.sleep(pause)

    async def _attempt(self, letter: Letter) -> NotSent | None:
        try:
            async with self._places:
                await _in_thread(lambda: self._mailer.send(letter))
        except NotSent as failure:
            return failure
        return None


async def _in_thread(work: Callable[[], None]) -> None:
    # A thread of its own that nobody waits for at the end: a silent mail server must not keep the gateway alive.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: Exception | None = None
        try:
            work()
        except Exception as raised:  # noqa: BLE001 - handed to the event loop, where it is raised again
            error = raised
        try:
            loop.call_soon_threadsafe(tell, error)
        except RuntimeError:
            # The loop has ended: nobody waits for the answer.
            return

    threading.Thread(target=run, name="mail", daemon=True).start()
    await done
