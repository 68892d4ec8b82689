"""A time-out that is over only when what has come already was looked at.

A tool that holds up its event loop holds up the answers to all other calls as well. When it lets go, their time is over
and their answers are there, unread; asyncio's own time-out would cancel who waits for them, as if nobody had answered.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Final

__all__ = ["Within", "is_within"]

# Rounds of the loop. Each looks at the network; from a packet to whoever waits for it are few, more with TLS.
_ROUNDS: Final = 16


class Within:
    """As `asyncio.timeout`: an `async with` block that `TimeoutError` ends after `seconds`.

    Args:
        seconds: From entering.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._token = _within.set(True)
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_later(self._seconds, self._over, _ROUNDS)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.cancel()
        # A coroutine may be closed in another context than it began in.
        with suppress(ValueError):
            _within.reset(self._token)
        await self._timeout.__aexit__(kind, error, traceback)

    def _over(self, rounds: int) -> None:
        if rounds:
            self._handle = self._loop.call_soon(self._over, rounds - 1)
        else:
            self._timeout.reschedule(self._loop.time())


def is_within() -> bool:
    """Whether the code that runs is in such a block."""
    return _within.get()


_within: Final = ContextVar("toolgate_within", default=False)
