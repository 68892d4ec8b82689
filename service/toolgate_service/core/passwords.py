"""Argon2id password hashing in a small thread pool with a bounded queue."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from toolgate_service.core.errors import ApiError

T = TypeVar("T")

#: seconds until the client should retry after a 429, sent in `Retry-After`
RETRY_AFTER = 2


class Passwords:
    """Thread pool for password hashing. One hash takes about 0.1 seconds and 64 MiB of memory."""

    def __init__(self, threads: int, queue: int) -> None:
        self._hasher = PasswordHash((Argon2Hasher(),))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._places = threads + queue
        self._decoy: str | None = None

    async def hash(self, password: str) -> str:
        """Return the Argon2id hash of a password.

        Raises:
            ApiError: 429, the queue is full.
        """
        return await self._run(lambda: self._hasher.hash(password))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Return whether a password matches a stored hash.

        If `stored` is None, return False after the same time. So the duration does not reveal whether a user exists.

        Raises:
            ApiError: 429, the queue is full.
        """
        if self._decoy is None:
            self._decoy = await self.hash("nobody's password")
        candidate = stored or self._decoy
        fits = await self._run(lambda: self._hasher.verify(password, candidate))
        return fits and stored is not None

    def close(self) -> None:
        """Cancel queued work and stop the threads without waiting for them."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._places <= 0:
            raise ApiError(
                429,
                f"Too many logins at once; retry after {RETRY_AFTER} seconds",
                {"Retry-After": str(RETRY_AFTER)},
            )
        self._places -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._places += 1
