"""Passwords: Argon2id in a small pool of threads, refused when too many wait (decisions §7, §9)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from toolgate_service.errors import ApiError

T = TypeVar("T")

#: seconds after which it is worth trying again when the pool is full
RETRY_AFTER = 2


class Passwords:
    """Hashes and verifies a few at a time: one hash takes about a tenth of a second and 64 MiB."""

    def __init__(self, threads: int, queue: int) -> None:
        self._hasher = PasswordHash((Argon2Hasher(),))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._places = threads + queue
        self._decoy: str | None = None

    async def hash(self, password: str) -> str:
        """Return the hash to store.

        Raises:
            ApiError: 429, too many wait already.
        """
        return await self._run(lambda: self._hasher.hash(password))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Say whether a password fits a stored hash; without one it takes as long and answers False.

        Raises:
            ApiError: 429, too many wait already.
        """
        if self._decoy is None:
            self._decoy = await self.hash("nobody's password")
        candidate = stored or self._decoy
        fits = await self._run(lambda: self._hasher.verify(password, candidate))
        return fits and stored is not None

    def close(self) -> None:
        """Let the threads go."""
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
