"""Several clients at once, in threads of their own."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from support.wire import Heard

T = TypeVar("T")


def together(*works: Callable[[], T]) -> list[T]:
    """Do several things, all begun at the same moment, and return their results in order."""
    gate = threading.Barrier(len(works))

    def begin(work: Callable[[], T]) -> T:
        gate.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(begin, works))


@contextmanager
def meanwhile(works: Sequence[Callable[[threading.Event], T]]) -> Iterator[list[Future[T]]]:
    """Keep several things going during a block; each is told to end by an event, and its error is raised then."""
    enough = threading.Event()
    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(work, enough) for work in works]
        try:
            yield running
        finally:
            enough.set()
        for one in running:
            one.result()


def send_until_decided(send: Callable[[], Heard]) -> Heard:
    """Send a request, and again while the gateway answers 503.

    Each request of a crowd waits for the lock of the organization. On a slow machine, the last ones wait until the
    gateway gives up. Then the gateway has decided nothing, and a client sends the request again.
    """
    heard = send()
    for _ in range(20):
        if heard.status != 503:
            break
        heard = send()
    return heard
