"""Turns within this process, before a connection is taken: a crowd that waits for one turn holds none meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from toolgate_service.errors import StorageFault


class Turns:
    """Gives each name to one taker at a time, in order of arrival."""

    def __init__(self) -> None:
        #: the lock of a name, and how many hold it or wait for it
        self._taken: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def taking(self, names: Iterable[str], until: float | None = None) -> AsyncIterator[None]:
        """Hold several names, taken in one order whoever asks: two takers never wait for each other.

        Args:
            names: which.
            until: the loop's time at which waiting ends; None waits forever.

        Raises:
            StorageFault: it was not this taker's turn in time.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(until):
                    for name in sorted(set(names)):
                        await stack.enter_async_context(self._one(name))
            except TimeoutError:
                raise StorageFault("other changes of the same organization took too long") from None
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
