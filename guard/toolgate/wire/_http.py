"""The one module that knows the HTTP library: `httpx`, or `httpx2` where `TOOLGATE_HTTP` says so.

Redirects are never followed: the API key goes to the configured address only.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import httpx

__all__ = ["Answer", "AsyncWire", "Request", "TransportFault", "Wire"]

# The gateway's own answers are far smaller; more than this is not the gateway.
_MAX_ANSWER: Final = 4 * 1024 * 1024


class TransportFault(Exception):
    """Nobody answered: connecting, sending or receiving failed or took too long."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `url` is complete."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, read to its end; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Clock: TypeAlias = Callable[[], float]


class Wire:
    """Sends requests from any thread; one pool of connections per process.

    Args:
        library: Import name of the HTTP library.
        transport: A transport of that library to use in place of the network.
        clock: Monotonic seconds.
    """

    def __init__(self, library: str, transport: object | None, clock: Clock) -> None:
        self._httpx = _load(library)
        self._options = _options(transport)
        self._clock = clock
        # Keyed by process: after a fork the parent's connections must not be used by both.
        self._clients: dict[int, httpx.Client] = {}
        weakref.finalize(self, _close_all, self._clients)

    def send(self, request: Request, seconds: float) -> Answer:
        """Send `request`, giving up after `seconds`.

        Raises:
            TransportFault: If no complete answer came.
        """
        ends = self._clock() + seconds
        try:
            built, client = _build(self._httpx, request, seconds), self._client()
            response = client.send(built, stream=True)
            try:
                body = b""
                # The library's time-out is per read, so a trickle is cut off here.
                for piece in response.iter_bytes():
                    body = _append(body, piece, late=self._clock() > ends)
            finally:
                response.close()
        except self._httpx.RequestError as error:
            raise TransportFault(_describe(error)) from error
        return Answer(response.status_code, _headers(response), body)

    def close(self) -> None:
        """Close the connections; a later `send` opens new ones."""
        _close_all(self._clients)

    def _client(self) -> httpx.Client:
        client = self._clients.get(os.getpid())
        if client is None:
            # Two threads may both get here; the one that lost closes nothing but an empty pool.
            client = self._clients.setdefault(os.getpid(), self._httpx.Client(**self._options))
        return client


class AsyncWire:
    """Sends requests from any task; one pool of connections per event loop.

    A pool is closed together with its loop: a suspended asynchronous generator holds it, and
    `asyncio.run` finishes those before it closes the loop.

    Args:
        library: Import name of the HTTP library.
        transport: A transport of that library to use in place of the network.
    """

    def __init__(self, library: str, transport: object | None) -> None:
        self._httpx = _load(library)
        self._options = _options(transport)
        self._pools: dict[
            asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None, None]]
        ] = {}

    async def send(self, request: Request, seconds: float) -> Answer:
        """Send `request`, giving up after `seconds`.

        Raises:
            TransportFault: If no complete answer came.
        """
        try:
            async with asyncio.timeout(seconds):
                client = await self._client()
                response = await client.send(_build(self._httpx, request, seconds), stream=True)
                try:
                    body = b""
                    async for piece in response.aiter_bytes():
                        body = _append(body, piece, late=False)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise TransportFault(f"no answer within {seconds:.1f} s") from error
        except self._httpx.RequestError as error:
            raise TransportFault(_describe(error)) from error
        return Answer(response.status_code, _headers(response), body)

    async def aclose(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool[1].aclose()

    async def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for closed in [each for each in list(self._pools) if each.is_closed()]:
                self._pools.pop(closed, None)
            client = self._httpx.AsyncClient(**self._options)
            keeper = _keep(client)
            self._pools[loop] = pool = (client, keeper)
            await anext(keeper)
        return pool[0]


async def _keep(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.aclose()


def _load(library: str) -> Any:
    return importlib.import_module(library)


def _options(transport: object | None) -> dict[str, Any]:
    given = {} if transport is None else {"transport": transport}
    return {"follow_redirects": False, **given}


def _build(library: Any, request: Request, seconds: float) -> Any:
    return library.Request(
        request.method,
        request.url,
        headers=dict(request.headers),
        content=request.body,
        extensions={"timeout": library.Timeout(seconds).as_dict()},
    )


def _append(body: bytes, piece: bytes, *, late: bool) -> bytes:
    if late:
        raise TransportFault("the answer did not end in time")
    if len(body) + len(piece) > _MAX_ANSWER:
        raise TransportFault(f"the answer is longer than {_MAX_ANSWER} bytes")
    return body + piece


def _headers(response: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _close_all(clients: dict[int, httpx.Client]) -> None:
    while clients:
        # Also the parent's, in a forked child: that closes the child's copies, and says nothing on the wire.
        clients.popitem()[1].close()
