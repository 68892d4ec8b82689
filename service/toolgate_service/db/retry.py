"""Retries of transactions that the database rolled back because of another transaction.

PostgreSQL resolves a deadlock by rolling back one of the transactions. A distributed database rolls back transactions
that it cannot serialize, at any statement or at the commit. In both cases, the SQLSTATE guarantees that the transaction
had no effect, so it can be retried. If the connection is lost during the commit, the outcome is unknown. Such a
transaction is never retried here.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from toolgate_service.core.errors import LostRace, StorageFault

T = TypeVar("T")

#: SQLSTATEs of a serialization failure and of a deadlock; other codes of class 40 are not retried, because 40003 means
#: that the outcome of the transaction is unknown
LOST = frozenset({"40001", "40P01"})

#: number of transactions that this process has retried
RETRIES = Counter[str](retried=0)

#: Maximum backoff in seconds before each retry. The actual backoff is random ("full jitter"), so that two conflicting
#: transactions do not conflict again.
PAUSES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2)
#: seconds after the start of the first attempt after which no further retry begins
MAX_DURATION = 3.0


class _Attempt:
    """State of a running call of `with_retry`. `outer` is the state of the enclosing call, or None if there is none."""

    __slots__ = ("has_committed", "outer")

    def __init__(self, outer: "_Attempt | None") -> None:
        self.has_committed = False
        self.outer = outer


_attempt: ContextVar[_Attempt | None] = ContextVar("toolgate.attempt", default=None)


async def with_retry(work: Callable[[], Awaitable[T]]) -> T:
    """Call a function, and call it again each time it raises `LostRace`.

    Effects of the function outside its transaction may occur several times. After one of its transactions was
    committed, the function is not called again.

    Raises:
        LostRace: The last allowed attempt failed too, or a transaction of the function was already committed.
    """
    attempt, loop = _Attempt(_attempt.get()), asyncio.get_running_loop()
    ends = loop.time() + MAX_DURATION
    token = _attempt.set(attempt)
    try:
        for pause in PAUSES:
            try:
                return await work()
            except LostRace:
                if attempt.has_committed or loop.time() > ends:
                    raise
            RETRIES["retried"] += 1
            await asyncio.sleep(pause * random.random())  # noqa: S311 - random jitter, not cryptography
        return await work()
    finally:
        _attempt.reset(token)


def mark_committed() -> None:
    """Record that a transaction was committed, so that the enclosing calls of `with_retry` do not retry."""
    attempt = _attempt.get()
    while attempt is not None:
        attempt.has_committed = True
        attempt = attempt.outer


def storage_fault(message: str, code: str | None) -> StorageFault:
    """Return the exception for a database error with the SQLSTATE `code`.

    It is a `LostRace` if the transaction can be retried, and a plain `StorageFault` otherwise. `message` must not
    contain values of rows, because they may be tool arguments.
    """
    return LostRace(message) if code in LOST else StorageFault(message)
