"""Senders of single requests over the network, synchronous and asynchronous, each request within one deadline.

Of httpx (or httpx2) only requests and transports are used. `httpx.Client` would add a fifth to the time of a call, and
redirects, cookies and log records with addresses, which must not be: the API key goes to the configured address only.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from toolgate._http.deadline import AsyncDeadline, look_up, watchdog
from toolgate._http.exchange import Exchange, describe
from toolgate._http.messages import Clock, Request, Response, TransportError
from toolgate._http.network import DEFAULT_NETWORK, Network
from toolgate._settings import proxies_allowed
from toolgate.errors import ConfigurationError

__all__ = ["AsyncHttpSender", "HttpSender", "set_request_hook"]

# Requests in progress at once: checks and log entries, and long polls. httpx's pool looks at every connection
# for every request, so callers queue here and not there.
_MAX_REQUESTS: Final = 50
_MAX_LONG_POLLS: Final = 500
_MAX_IDLE: Final = 20
_IDLE_SECONDS: Final = 5.0
# The shortest time-out. A response that has arrived already is read, even after the deadline.
_SHORTEST: Final = 0.001
# The time-outs of httpx end a request first; the watchdog ends it if the peer keeps sending single bytes.
_GRACE: Final = 0.05
_PORTS: Final = {"http": 80, "https": 443}

_request_hook: Callable[[str], None] | None = None


def set_request_hook(hook: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Set a function that is called with the URL before each request to the network, and return the previous one.

    The pytest plugin blocks the network with it: an exception of the hook stops the request.
    """
    global _request_hook
    previous, _request_hook = _request_hook, hook
    return previous


class _Library:
    """Creates requests and transports of the HTTP library for one gateway."""

    def __init__(self, url: str, name: str, transport: object | None, network: Network) -> None:
        self.httpx: Any = importlib.import_module(name)
        # A TLS failure after the handshake is not wrapped by httpx.
        self.errors = (self.httpx.RequestError, ssl.SSLError)
        self.uses_network = transport is None or isinstance(
            transport, (self.httpx.HTTPTransport, self.httpx.AsyncHTTPTransport)
        )
        self._gateway_url = url
        self.is_given = transport is not None
        self._transport = transport
        self._network = network
        self._context: ssl.SSLContext | None = None
        # Nearly all requests have one of two URLs, and parsing one takes tens of microseconds.
        self._url = lru_cache(maxsize=16)(self.httpx.URL)

    def transport(self, kind: str) -> Any:
        """Return a transport that has connections of its own, or the one that was given; `kind` is its base class."""
        if self._transport is not None:
            if not isinstance(self._transport, getattr(self.httpx, kind)):
                calls = "synchronous" if kind == "BaseTransport" else "asynchronous"
                raise ConfigurationError(
                    f"transport is a {type(self._transport).__name__!r} and not a {self.httpx.__name__}.{kind}, which "
                    f"{calls} calls need; use a class that is both"
                )
            return self._transport
        create = self.httpx.HTTPTransport if kind == "BaseTransport" else self.httpx.AsyncHTTPTransport
        try:
            if self._context is None:
                self._context = self._network.context(self._gateway_url, self.httpx.create_ssl_context)
            return create(
                verify=self._context,
                proxy=self._proxy(),
                limits=self.httpx.Limits(
                    max_connections=None, max_keepalive_connections=_MAX_IDLE, keepalive_expiry=_IDLE_SECONDS
                ),
                trust_env=False,
            )
        except (ImportError, OSError, ValueError, self.httpx.InvalidURL) as error:
            # The message of other errors may contain a part of a proxy's password.
            reason = describe(error) if isinstance(error, (ImportError, OSError)) else type(error).__name__
            raise ConfigurationError(
                f"the HTTP client cannot be created: {reason}; check HTTPS_PROXY, ALL_PROXY, "
                "SSL_CERT_FILE and SSL_CERT_DIR in the environment"
            ) from None

    def request(self, request: Request, timeouts: dict[str, float | None], trace: object) -> Any:
        if _request_hook is not None and self.uses_network:
            _request_hook(request.url)
        try:
            return self.httpx.Request(
                request.method,
                self._url(request.url),
                headers=dict(request.headers),
                content=request.body,
                extensions={"timeout": timeouts, "trace": trace},
            )
        except (self.httpx.InvalidURL, ValueError) as error:
            raise ConfigurationError(
                f"no request can be made to this url ({describe(error)}); set TOOLGATE_URL again"
            ) from error

    def look_up(self, seconds: float) -> int:
        """Return the number of addresses to which a connection can be established; 1 if a given transport connects.

        Raises:
            TransportError: If there is no result within `seconds`, or the host is unknown.
        """
        if self._transport is not None:
            return 1
        parts = urlsplit(self._proxy() or self._gateway_url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        try:
            return look_up(host, port, seconds)
        except TimeoutError as error:
            message = f"the address of {host!r} was not found in time"
            raise TransportError(message, answered=False, reached=False) from error
        except OSError as error:
            raise TransportError(describe(error), answered=False, reached=False) from error

    def _proxy(self) -> str | None:
        if self._network.proxy is not None or not proxies_allowed(self._gateway_url):
            return self._network.proxy
        named = getproxies()
        proxy = named.get("https") or named.get("all")
        if not proxy or proxy_bypass(urlsplit(self._gateway_url).netloc):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"


class _Connection:
    """A transport that serves one request at a time, so that its socket is that of the request."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.sockets = weakref.WeakSet[socket.socket]()
        self.idle_since = 0.0

    def add(self, stream: Any) -> None:
        """Remember the socket of a network stream."""
        opened = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(opened, socket.socket):
            self.sockets.add(opened)

    def abort(self) -> None:
        """End the request in progress, which another thread waits for."""
        for each in list(self.sockets):
            with suppress(OSError):
                # Not SSLSocket's own method, which is not safe while another thread reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)


class _Pool:
    """The connections of one process, and how many requests may use them at once.

    A transport that was given is shared by all requests.
    """

    def __init__(self, library: _Library) -> None:
        self.slots = {
            False: threading.BoundedSemaphore(_MAX_REQUESTS),
            True: threading.BoundedSemaphore(_MAX_LONG_POLLS),
        }
        # Addresses of the host. Connecting tries one after the other, each with the time-out for connecting.
        self.addresses = 0
        self._library = library
        self._shared = _Connection(library.transport("BaseTransport")) if library.is_given else None
        self._idle: list[_Connection] = []
        self._connections = weakref.WeakSet[_Connection]()
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[_Connection]:
        """Reserve a connection."""
        try:
            connection = self._shared or self._idle.pop()
        except IndexError:
            connection = _Connection(self._library.transport("BaseTransport"))
            self._connections.add(connection)
        try:
            yield connection
        finally:
            connection.idle_since = time.monotonic()
            if self._shared is None:
                self._idle.append(connection)
            self._close_idle(0 if self._is_closed else _MAX_IDLE)

    def close(self) -> None:
        """Close the connections; those in use are closed after their request."""
        self._is_closed = True
        self._close_idle(0)

    def close_sockets(self) -> None:
        """Close the copies of the parent's sockets in a forked child, without a message to the peer."""
        for connection in [*self._connections, *filter(None, [self._shared])]:
            for each in list(connection.sockets):
                each.close()

    def _close_idle(self, limit: int) -> None:
        """Close connections that expired, and the oldest beyond the limit."""
        if self._shared is not None:
            if not limit:
                self._shared.transport.close()
            return
        expired = time.monotonic() - _IDLE_SECONDS
        # Another thread may take the last connection.
        with suppress(IndexError):
            while len(self._idle) > limit or self._idle[0].idle_since < expired:
                self._idle.pop(0).transport.close()


class HttpSender:
    """Sends requests from any thread, with a connection pool for each process.

    Args:
        url: Address of the gateway.
        library: Import name of the HTTP library.
        transport: A transport of that library that replaces the network.
        clock: Monotonic seconds.
        network: Certificates, and a proxy that takes precedence over those of the environment.
    """

    def __init__(
        self,
        url: str,
        library: str = "httpx",
        transport: object | None = None,
        *,
        clock: Clock = time.monotonic,
        network: Network = DEFAULT_NETWORK,
    ) -> None:
        self._library = _Library(url, library, transport, network)
        self._clock = clock
        # By process id: parent and child must not use one connection.
        self._pools: dict[int, _Pool] = {}
        # Not at the end of the process: the outbox still sends then, see `_close_at_exit`.
        weakref.finalize(self, _close_all, self._pools).atexit = False
        _senders.add(self)

    def send(self, request: Request, seconds: float) -> Response:
        """Send `request` and return the response, both within `seconds`.

        Raises:
            TransportError: If there is no complete response.
            ConfigurationError: If the request cannot be sent at all.
        """
        ends, pool = self._clock() + seconds, self._pool()
        slot = pool.slots[request.long_poll]
        if not slot.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise _no_slot(seconds)
        try:
            with pool.connection() as connection:
                return self._send(pool, connection, request, ends, seconds)
        finally:
            slot.release()

    @contextmanager
    def stream(self, request: Request, seconds: float) -> Iterator[tuple[Response, Iterator[bytes]]]:
        """Send `request` and yield the response without its body, and the chunks of a body of any length.

        Args:
            request: The request.
            seconds: Time-out of each step and each chunk.

        Raises:
            TransportError: If there is no complete response, also from inside of the block.
            ConfigurationError: If the request cannot be sent at all.
        """
        with self._pool().connection() as connection:
            exchange = Exchange(self._library.httpx, on_open=connection.add)
            built = self._library.request(request, dict.fromkeys(_STEPS, seconds), exchange.trace)
            try:
                response = connection.transport.handle_request(built)
                try:
                    exchange.receive_head(response)
                    yield exchange.response(), response.iter_bytes()
                finally:
                    response.close()
            except self._library.errors as error:
                raise TransportError(describe(error)) from error

    def close(self) -> None:
        """Close the connections; a later `send` opens new ones."""
        _close_all(self._pools)

    def _send(
        self, pool: _Pool, connection: _Connection, request: Request, ends: float, seconds: float
    ) -> Response:
        library = self._library

        def resolve() -> None:
            # Before each connection, since httpx's time-outs do not cover a resolver that stalls.
            pool.addresses = library.look_up(max(_SHORTEST, ends - self._clock()))

        exchange = Exchange(
            library.httpx,
            traced=library.uses_network,
            on_connect=resolve if pool.addresses else None,
            on_open=connection.add,
        )
        timeouts: dict[str, float | None] = {}
        built = library.request(request, timeouts, exchange.trace)
        if not pool.addresses:
            resolve()
        left = max(_SHORTEST, ends - self._clock())
        timeouts.update(dict.fromkeys(_STEPS, left), connect=left / pool.addresses)
        with watchdog(left + _GRACE, connection.abort) as watch:
            try:
                response = connection.transport.handle_request(built)
                try:
                    exchange.receive_head(response)
                    for chunk in response.iter_bytes():
                        exchange.receive_body(chunk, late=self._clock() > ends)
                except library.httpx.DecodingError:
                    exchange.discard_body()
                finally:
                    response.close()
            except library.errors as error:
                raise (exchange.timed_out(seconds) if watch.fired else exchange.failure(error)) from error
        return exchange.response()

    def _pool(self) -> _Pool:
        pool = self._pools.get(os.getpid())
        if pool is None:
            # Two threads may both arrive here; the other one's pool has no connections yet.
            pool = self._pools.setdefault(os.getpid(), _Pool(self._library))
        return pool


class AsyncHttpSender:
    """Sends requests from any task, with a connection pool for each event loop.

    A pool is closed together with its loop: a suspended asynchronous generator holds it, and `asyncio.run`
    finishes those before it closes the loop.

    Args:
        url: Address of the gateway.
        library: Import name of the HTTP library.
        transport: A transport of that library that replaces the network.
        network: Certificates, and a proxy that takes precedence over those of the environment.
    """

    def __init__(
        self,
        url: str,
        library: str = "httpx",
        transport: object | None = None,
        *,
        network: Network = DEFAULT_NETWORK,
    ) -> None:
        self._library = _Library(url, library, transport, network)
        self._pools: dict[asyncio.AbstractEventLoop, _LoopPool] = {}

    async def send(self, request: Request, seconds: float) -> Response:
        """Send `request` and return the response, both within `seconds`.

        Raises:
            TransportError: If there is no complete response.
            ConfigurationError: If the request cannot be sent at all.
        """
        library, has_slot = self._library, False
        exchange = Exchange(library.httpx, traced=library.uses_network)
        # On the network the deadline alone ends a request: a time-out of a single step would end it before a response
        # is read that arrived while the event loop was blocked.
        limit = None if library.uses_network else max(0.0, seconds)
        try:
            async with AsyncDeadline(seconds):
                pool = await self._pool()
                built = library.request(request, dict.fromkeys(_STEPS, limit), exchange.atrace)
                async with pool.slots[request.long_poll]:
                    has_slot = True
                    await self._send(pool.transport, built, exchange)
        except TimeoutError as error:
            raise (exchange.timed_out(seconds) if has_slot else _no_slot(seconds)) from error
        except library.errors as error:
            raise exchange.failure(error) from error
        return exchange.response()

    async def aclose(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.keeper.aclose()

    async def _send(self, transport: Any, built: Any, exchange: Exchange) -> None:
        try:
            response = await transport.handle_async_request(built)
        except BaseException:
            await exchange.aclose_unfinished()
            raise
        try:
            exchange.receive_head(response)
            async for chunk in response.aiter_bytes():
                exchange.receive_body(chunk)
        except self._library.httpx.DecodingError:
            exchange.discard_body()
        finally:
            await response.aclose()

    async def _pool(self) -> _LoopPool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for closed in [each for each in list(self._pools) if each.is_closed()]:
                self._pools.pop(closed, None)
            self._pools[loop] = pool = _LoopPool(self._library.transport("AsyncBaseTransport"))
            await anext(pool.keeper)
        return pool


class _LoopPool:
    """The connections of one event loop, and how many requests may use them at once."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.slots = {
            False: asyncio.Semaphore(_MAX_REQUESTS),
            True: asyncio.Semaphore(_MAX_LONG_POLLS),
        }
        self.keeper = _close_with_loop(transport)


async def _close_with_loop(transport: Any) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await transport.aclose()


_STEPS: Final = ("connect", "read", "write", "pool")


def _no_slot(seconds: float) -> TransportError:
    return TransportError(
        f"not sent within {seconds:.1f} s: too many requests of this process are in progress", unsent=True
    )


_senders: Final[weakref.WeakSet[HttpSender]] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    """Close all connections; exit handlers run in reverse order, and the outbox registers its own later."""
    for sender in list(_senders):
        sender.close()


def _close_all(pools: dict[int, _Pool]) -> None:
    while pools:
        process, pool = pools.popitem()
        if process == os.getpid():
            pool.close()
        else:
            # In a forked child the parent's transport may hold a lock forever; its sockets have none.
            pool.close_sockets()
