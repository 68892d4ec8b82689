"""One deadline for every connect, read and write of a synchronous request.

The HTTP library gives each of them the whole time-out, so that a peer who sends a byte now and then is
never late. Its pool of connections can be told what to open them with: that is where the deadline is
kept.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from toolgate._http.faults import handshake_failed, hung_up, refused_tls
from toolgate._http.messages import TransportFault
from toolgate._http.names import look_up

__all__ = ["keep_budget", "spending", "within_budget"]

# A slow reader takes some of each piece, and the time left is looked at between them.
_PIECE: Final = 64 * 1024


class _Budget(threading.local):
    left: Callable[[], float] | None = None


_budget: Final = _Budget()


@contextmanager
def spending(left: Callable[[], float]) -> Iterator[None]:
    """What this thread does on the network inside ends when `left` says that no second is left."""
    _budget.left = left
    try:
        yield
    finally:
        _budget.left = None


def keep_budget(transport: object, core: Any) -> None:
    """Have the connections of `transport` keep to the budget; one without a pool of its own is left alone.

    Args:
        transport: A synchronous transport of the HTTP library.
        core: The library's own library for connections, `httpcore` or its successor.
    """
    pool: Any = getattr(transport, "_pool", None)
    if isinstance(pool, core.ConnectionPool) and not isinstance(pool._network_backend, _Backend):  # noqa: SLF001 - offered by the pool's constructor, which the HTTP library does not pass on
        pool._network_backend = _Backend(pool._network_backend, core)  # noqa: SLF001 - likewise


def within_budget(backend: object, core: Any) -> object:
    """A network backend whose connections keep to the budget, for a pool of one's own.

    Args:
        backend: Opens them.
        core: As for `keep_budget`.
    """
    return _Backend(backend, core)


class _Backend:
    """Opens connections within the budget."""

    def __init__(self, inner: Any, core: Any) -> None:
        self._inner = inner
        self._core = core

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> _Stream:
        addresses = self._addresses(host, port, _cut(timeout, connected=False))
        while True:
            address = addresses.pop(0)
            seconds = _cut(timeout, connected=False)
            # One address that swallows everything must not use up the time of the others.
            share = seconds if seconds is None else seconds / (len(addresses) + 1)
            try:
                return _Stream(self._inner.connect_tcp(address, port, timeout=share, **options), self._core)
            except (self._core.ConnectError, self._core.ConnectTimeout):
                if not addresses:
                    raise

    def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> _Stream:
        return _Stream(
            self._inner.connect_unix_socket(path, timeout=_cut(timeout, connected=False), **options),
            self._core,
        )

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)

    def _addresses(self, host: str, port: int, seconds: float | None) -> list[str]:
        try:
            found = look_up(host, port, seconds)
        except TimeoutError as error:
            raise self._core.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError) as error:
            raise self._core.ConnectError(str(error)) from error
        if len(found) == 1:
            return [host]
        # A link-local address is useless without its interface.
        return [str(at[0]) + (f"%{at[3]}" if len(at) > 3 and at[3] else "") for *_, at in found]  # noqa: PLR2004 - the fourth member


class _Stream:
    """One connection within the budget of whoever uses it at the time."""

    def __init__(self, inner: Any, core: Any, *, fresh_tls: bool = False) -> None:
        self._inner = inner
        self._core = core
        self._fresh_tls = fresh_tls
        self._held = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            seconds = _cut(timeout)
        except TransportFault as late:
            # This thread had no turn until now: what has come meanwhile is an answer all the same.
            late.answered = bool(self._inner.get_extra_info("is_readable"))
            raise
        if self._held:
            # The peer may have answered before it read everything: that counts, as where it is not held back.
            with suppress(self._core.WriteError):
                self._let_go(timeout)
            seconds = _cut(timeout)
        # A transport may be shared with others, who are served as before.
        ours = _budget.left is not None
        try:
            data: bytes = self._inner.read(max_bytes, timeout=seconds)
        except (self._core.ReadError, ssl.SSLError) as error:
            if ours and self._fresh_tls and not refused_tls(error):
                raise hung_up() from error
            raise
        if ours and self._fresh_tls and not data:
            raise hung_up()
        self._fresh_tls = False
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # Head and body come one after the other: together they are one packet, and wake the peer once.
        self._held += buffer
        if len(self._held) > _PIECE or _budget.left is None:
            self._let_go(timeout)

    def _let_go(self, timeout: float | None) -> None:
        held, self._held = self._held, b""
        for start in range(0, len(held), _PIECE):
            self._inner.write(held[start : start + _PIECE], timeout=_cut(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, ssl_context: Any, server_hostname: Any = None, timeout: Any = None) -> _Stream:
        seconds = _cut(timeout)
        try:
            inner = self._inner.start_tls(ssl_context, server_hostname, seconds)
        except (self._core.ConnectError, self._core.ConnectTimeout) as error:
            if _budget.left is None or refused_tls(error):
                raise
            raise handshake_failed(error) from error
        return _Stream(inner, self._core, fresh_tls=True)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _cut(timeout: float | None, *, connected: bool = True) -> float | None:
    left = _budget.left
    if left is None:
        return timeout
    seconds = left()
    if seconds <= 0:
        raise TransportFault("the answer did not end in time", answered=False, reached=connected)
    return seconds if timeout is None else min(timeout, seconds)
