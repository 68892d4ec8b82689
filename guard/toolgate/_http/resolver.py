"""Looking up a host's addresses within a time: the system's own look-up knows none."""

from __future__ import annotations

import os
import socket
import threading
from ipaddress import ip_address
from typing import Any, Final

__all__ = ["look_up"]


class _LookUp(threading.Thread):
    """One look-up under way, for everybody who asks for the same."""

    def __init__(self, key: tuple[int, str, int]) -> None:
        # Nobody waits for it at the end of the process.
        super().__init__(name="toolgate-look-up", daemon=True)
        self._key = key
        self.found: list[Any] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = _ask(self._key[1], self._key[2])
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self.error = error
        finally:
            _under_way.pop(self._key, None)


def look_up(host: str, port: int, seconds: float | None) -> list[Any]:
    """As `socket.getaddrinfo` for streams, within `seconds`.

    Raises:
        TimeoutError: Nothing was found out in time; the next to ask waits for the same look-up.
        OSError: The host is not known.
    """
    if seconds is None or _is_address(host):
        return _ask(host, port)
    key = (os.getpid(), host, port)
    with _beginning(key[0]):
        thread = _under_way.get(key)
        if thread is None:
            thread = _under_way[key] = _LookUp(key)
            thread.start()
    thread.join(min(seconds, threading.TIMEOUT_MAX))
    if thread.is_alive():
        raise TimeoutError(f"the address of {host!r} was not found out in time")
    if thread.error is not None:
        # A new one each time: several threads may raise it at once.
        raise OSError(str(thread.error)) from thread.error
    return thread.found


def _ask(host: str, port: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _beginning(process: int) -> threading.Lock:
    # By process: a fork may happen while another thread holds it.
    return _locks.setdefault(process, threading.Lock())


_locks: Final = dict[int, threading.Lock]()
_under_way: Final = dict[tuple[int, str, int], _LookUp]()
