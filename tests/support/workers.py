"""The workers of a gateway that serves with several: who they are, and clients that each speak to one of them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.wire import Wire


def children_of(pid: int) -> dict[int, bytes]:
    """Return the command line of each child of a process's main thread, by process id."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child): _command_line(child) for child in children}


def workers_of(pid: int) -> list[int]:
    """Return the process ids of a gateway's workers, without the helper process of `multiprocessing`."""
    return [child for child, command in children_of(pid).items() if b"--multiprocessing-fork" in command]


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


@contextmanager
def held(pid: int) -> Iterator[None]:
    """Let a process stand still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def one_to_each(pid: int, connect: Callable[[], Wire]) -> list[Wire]:
    """Return a client of each of two workers: while one stands still the other takes the connection.

    Args:
        pid: the gateway's.
        connect: makes a client.
    """
    first, second = workers_of(pid)
    wires = []
    for other in (second, first):
        with held(other):
            wire = connect()
            assert wire.send("GET", "/health").status == 200
            wires.append(wire)
    return wires
