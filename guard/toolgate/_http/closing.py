"""What the HTTP library leaves out of asynchronous connections with TLS.

It does not close a connection whose handshake is given up, and does not tell who hung up right after one.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from toolgate._http.faults import handshake_failed, hung_up, refused_tls
from toolgate._http.within import connecting, is_within

__all__ = ["close_given_up", "closing_given_up"]


def close_given_up(transport: object, core: Any) -> None:
    """Have the connections of `transport` closed; one without a pool of its own is left alone.

    Args:
        transport: An asynchronous transport of the HTTP library.
        core: The library's own library for connections, `httpcore` or its successor.
    """
    pool: Any = getattr(transport, "_pool", None)
    if isinstance(pool, core.AsyncConnectionPool) and not isinstance(pool._network_backend, _Backend):  # noqa: SLF001 - offered by the pool's constructor, which the HTTP library does not pass on
        pool._network_backend = _Backend(pool._network_backend, core)  # noqa: SLF001 - likewise


def closing_given_up(backend: object, core: Any) -> object:
    """A network backend whose connections are closed, for a pool of one's own.

    Args:
        backend: Opens them.
        core: As for `close_given_up`.
    """
    return _Backend(backend, core)


class _Backend:
    """Opens connections."""

    def __init__(self, inner: Any, core: Any) -> None:
        self._inner = inner
        self._core = core

    async def connect_tcp(self, *given: Any, **named: Any) -> _Stream:
        with connecting():
            return _Stream(await self._inner.connect_tcp(*given, **named), self._core)

    async def connect_unix_socket(self, *given: Any, **named: Any) -> _Stream:
        with connecting():
            return _Stream(await self._inner.connect_unix_socket(*given, **named), self._core)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Stream:
    """One connection."""

    def __init__(self, inner: Any, core: Any, *, fresh_tls: bool = False) -> None:
        self._inner = inner
        self._core = core
        self._fresh_tls = fresh_tls

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library's interface
        # A transport may be shared with others, who are served as before.
        ours = is_within()
        try:
            # The block says when the time is over, and looks once more before: the inner time-out would not.
            data: bytes = await self._inner.read(max_bytes, timeout=None if ours else timeout)
        except (self._core.ReadError, ssl.SSLError) as error:
            if ours and self._fresh_tls and not refused_tls(error):
                raise hung_up() from error
            raise
        if ours and self._fresh_tls and not data:
            raise hung_up()
        self._fresh_tls = False
        return data

    async def write(self, *given: Any, **named: Any) -> None:
        await self._inner.write(*given, **named)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(self, *given: Any, **named: Any) -> _Stream:
        try:
            inner = await self._inner.start_tls(*given, **named)
        except asyncio.CancelledError:
            await self._inner.aclose()
            raise
        except (self._core.ConnectError, self._core.ConnectTimeout) as error:
            if not is_within() or refused_tls(error):
                raise
            raise handshake_failed(error) from error
        return _Stream(inner, self._core, fresh_tls=True)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
