"""Waiting for a condition rather than for a time."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_pause = threading.Event()


def until(condition: Callable[[], T], *, seconds: float = 30) -> T:
    """Return the condition's first true value; fail when there is none within the seconds."""
    ends = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends, "the condition did not come true"
        _pause.wait(0.02)
    return value


async def eventually(condition: Callable[[], Awaitable[T]], *, seconds: float = 30) -> T:
    """Return the condition's first true value, while everything else on the loop goes on."""
    async with asyncio.timeout(seconds):
        while not (value := await condition()):  # noqa: ASYNC110 - what is waited for is in a database
            await asyncio.sleep(0.01)
    return value
