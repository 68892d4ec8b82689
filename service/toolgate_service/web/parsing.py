"""Parsing of request bodies: small ones on the event loop, larger ones in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: bytes of a body that is parsed on the event loop; the worst one found takes less than 10 ms, an ordinary one 0.1 ms
MAX_ON_LOOP = 16 * 1024


class BodyParser:
    """Runs the parsers of bodies. One thread: more of them would only compete with the event loop for the interpreter."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parse")

    async def run(self, size: int, parse: Callable[[], T]) -> T:
        """Return the result of `parse`, or raise its exception.

        Args:
            size: bytes of the body; beyond `MAX_ON_LOOP` it is parsed in the thread.
            parse: touches nothing that belongs to the event loop.
        """
        if size <= MAX_ON_LOOP:
            return parse()
        return await asyncio.get_running_loop().run_in_executor(self._thread, parse)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
