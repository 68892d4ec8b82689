"""A time-out that is over only when what has come already was looked at.

A tool that holds up its event loop holds up the answers to all other calls as well. When it lets go, their time is over
and their answers are there, unread; asyncio's own time-out would cancel who waits for them, as if nobody had answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Final

__all__ = ["Within", "connecting", "is_within"]

# Rounds of the loop. Each looks at the network; from a packet to whoever waits for it are few, more with TLS.
_ROUNDS: Final = 16


class Within:
    """As `asyncio.timeout`: an `async with` block that `TimeoutError` ends after `seconds`.

    Args:
        seconds: From entering.

    Attributes:
        is_connecting: Whether a connection is being established, so that nothing has been sent.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self.is_connecting = False

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._token = _within.set(self)
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
    return _within.get() is not None


@contextmanager
def connecting() -> Iterator[None]:
    """A connection is established inside; if it takes too long, the block that ends knows it."""
    within = _within.get()
    if within is not None:
        within.is_connecting = True
    yield
    # Not if it failed: then nothing was sent, whatever ends the block.
    if within is not None:
        within.is_connecting = False


_within: Final[ContextVar[Within | None]] = ContextVar("toolgate_within", default=None)
