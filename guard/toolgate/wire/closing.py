"""Close a connection whose TLS handshake is given up; the HTTP library leaves it to the garbage collector."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["close_given_up"]


def close_given_up(transport: object, core: Any) -> None:
    """Have the connections of `transport` closed; one without a pool of its own is left alone.

    Args:
        transport: An asynchronous transport of the HTTP library.
        core: The library's own library for connections, `httpcore` or its successor.
    """
    pool: Any = getattr(transport, "_pool", None)
    if isinstance(pool, core.AsyncConnectionPool) and not isinstance(pool._network_backend, _Backend):  # noqa: SLF001 - offered by the pool's constructor, which the HTTP library does not pass on
        pool._network_backend = _Backend(pool._network_backend)  # noqa: SLF001 - likewise


class _Backend:
    """Opens connections."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def connect_tcp(self, *given: Any, **named: Any) -> _Stream:
        return _Stream(await self._inner.connect_tcp(*given, **named))

    async def connect_unix_socket(self, *given: Any, **named: Any) -> _Stream:
        return _Stream(await self._inner.connect_unix_socket(*given, **named))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Stream:
    """One connection."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def read(self, *given: Any, **named: Any) -> Any:
        return await self._inner.read(*given, **named)

    async def write(self, *given: Any, **named: Any) -> None:
        await self._inner.write(*given, **named)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(self, *given: Any, **named: Any) -> _Stream:
        try:
            return _Stream(await self._inner.start_tls(*given, **named))
        except asyncio.CancelledError:
            await self._inner.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
