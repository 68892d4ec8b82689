"""TCP ports on 127.0.0.1 that no other test process uses at the same time."""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

#: below Linux's range of ephemeral ports (32768 and higher), which the kernel gives to any process at any time
RESERVABLE = range(20_000, 32_768)


def reserve_port() -> int:
    """Return a port that is reserved for this process until it ends.

    Use it only for programs that cannot listen on port 0 and report the port that they got.
    """
    for port in random.sample(RESERVABLE, len(RESERVABLE)):
        lock = socket.socket(socket.AF_UNIX)
        try:
            # A name in Linux's abstract namespace is unique on the machine, and free again when the process has ended.
            lock.bind(f"\0toolgate-tests-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        lock.detach()
        return port
    raise AssertionError(f"no port of {RESERVABLE} is free")


@contextmanager
def refusing_port() -> Iterator[int]:
    """Yield a port that refuses connections. No other process can listen on it until the block ends."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
