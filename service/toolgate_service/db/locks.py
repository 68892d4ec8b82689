"""Named locks within one process.

A writer takes these locks before it takes a database connection, so that waiting writers do not occupy connections.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from toolgate_service.core.errors import StorageFault


class KeyedLocks:
    """Set of named locks; tasks that wait for the same lock get it in order of arrival."""

    def __init__(self) -> None:
        #: for each name, the lock and the number of tasks that hold it or wait for it
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def acquire(self, names: Iterable[str], until: float | None = None) -> AsyncIterator[None]:
        """Hold the locks of several names during the `with` block.

        The locks are taken in sorted order, so that two tasks never wait for each other. `until` is the deadline for
        taking the locks, as event loop time; None waits without limit.

        Raises:
            StorageFault: A lock was not available before the deadline.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(until):
                    for name in sorted(set(names)):
                        await stack.enter_async_context(self._acquire_one(name))
            except TimeoutError:
                raise StorageFault("other changes of the same organization took too long") from None
            yield

    @asynccontextmanager
    async def _acquire_one(self, name: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)
