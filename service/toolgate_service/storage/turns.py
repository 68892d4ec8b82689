"""Turns within this process, before a connection is taken: a crowd that waits for one turn holds none meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager


class Turns:
    """Gives each name to one taker at a time, in order of arrival."""

    def __init__(self) -> None:
        #: the lock of a name, and how many hold it or wait for it
        self._taken: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def taking(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold several names, taken in one order whoever asks: two takers never wait for each other."""
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                await stack.enter_async_context(self._one(name))
            yield

    @asynccontextmanager
    async def _one(self, name: str) -> AsyncIterator[None]:
        lock, takers = self._taken.get(name, (asyncio.Lock(), 0))
        self._taken[name] = (lock, takers + 1)
        try:
            async with lock:
                yield
        finally:
            _, takers = self._taken[name]
            if takers == 1:
                del self._taken[name]
            else:
                self._taken[name] = (lock, takers - 1)
