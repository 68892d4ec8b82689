"""Transactions that lose a race against another one are done anew, from their beginning.

PostgreSQL breaks a circle of locks by ending one of the transactions, and an engine that spreads over several machines ends
whichever it cannot put in an order with the others, at any statement and at the commit too. Both say so by a code of
their own, after which nothing of the transaction is left. A connection that is lost while the server commits says
nothing of the kind: what became of it nobody knows, and it is never done anew here.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from toolgate_service.errors import LostRace, StorageFault

T = TypeVar("T")

#: SQLSTATE of a failed serialization and of a deadlock. Not the rest of the class: 40003 is an unknown outcome.
LOST = frozenset({"40001", "40P01"})

#: retried transactions of this process
RETRIES = Counter[str](retried=0)

#: seconds, at most, before each further attempt: chance decides how long, so that two that met do not meet again
PAUSES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2)
#: seconds after which no further attempt begins
PATIENCE = 3.0


class _Work:
    """A piece of work that may be done anew, and the one it is a part of."""

    __slots__ = ("has_committed", "whole")

    def __init__(self, whole: "_Work | None") -> None:
        self.has_committed = False
        self.whole = whole


_work: ContextVar[_Work | None] = ContextVar("toolgate.work", default=None)


async def anew(work: Callable[[], Awaitable[T]]) -> T:
    """Do a piece of work, and from its beginning again each time that its transaction lost a race.

    Args:
        work: one transaction, and around it nothing that may not happen twice. Once a transaction of it is committed
            it is not done again.

    Raises:
        LostRace: it lost again and again, or too late; nothing of its last transaction was done.
    """
    mine, loop = _Work(_work.get()), asyncio.get_running_loop()
    ends = loop.time() + PATIENCE
    token = _work.set(mine)
    try:
        for pause in PAUSES:
            try:
                return await work()
            except LostRace:
                if mine.has_committed or loop.time() > ends:
                    raise
            RETRIES["retried"] += 1
            await asyncio.sleep(pause * random.random())  # noqa: S311 - keeps two apart, guards nothing
        return await work()
    finally:
        _work.reset(token)


def committed() -> None:
    """Say that a transaction was committed: the work it is a part of is not done again."""
    work = _work.get()
    while work is not None:
        work.has_committed = True
        work = work.whole


def fault(said: str, code: str | None) -> StorageFault:
    """Return what a server's refusal means.

    Args:
        said: what the log says of it: no values.
        code: its SQLSTATE.
    """
    return LostRace(said) if code in LOST else StorageFault(said)
