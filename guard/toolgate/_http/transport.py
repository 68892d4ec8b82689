"""Classes that send single requests over the network, synchronously or asynchronously, each with one deadline.

They use only the request and transport classes of httpx (or httpx2). `httpx.Client` is not used for these reasons: it
makes a call 20 % slower, it logs URLs, it keeps cookies, and it can follow redirects, although the API key must be sent
only to the configured address.
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

from toolgate._http.exchange import (
    AsyncDeadline,
    Clock,
    Exchange,
    Request,
    Response,
    TransportError,
    describe,
    look_up,
    start_watch,
)
from toolgate._http.network import DEFAULT_NETWORK, Network
from toolgate._settings import proxies_allowed
from toolgate.errors import ConfigurationError

__all__ = ["AsyncHttpSender", "HttpSender", "set_request_hook"]

# Maximum number of concurrent requests that are not long polls. Further callers wait in this module and not in httpx's
# connection pool, which is slow with many waiting requests, because it iterates over all connections for each request.
_MAX_REQUESTS: Final = 50
# Maximum number of concurrent long polls. They have a separate limit, so that they do not delay checks.
_MAX_LONG_POLLS: Final = 500
_MAX_IDLE: Final = 20
_IDLE_SECONDS: Final = 5.0
# Minimum time-out in seconds. It applies even after the deadline, so that a response that has already arrived is read.
_SHORTEST: Final = 0.001
# Seconds after the deadline at which the watchdog thread aborts the request. A time-out of httpx usually ends the
# request earlier, but not if the server keeps sending single bytes.
_GRACE: Final = 0.05
_PORTS: Final = {"http": 80, "https": 443}
_STEPS: Final = ("connect", "read", "write", "pool")
_request_hook: Callable[[str], None] | None = None


def set_request_hook(hook: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Set a function that is called with the URL before each network request, and return the previous function.

    If the function raises an exception, the request is not sent. The pytest plugin uses this to block the network.
    """
    global _request_hook
    previous, _request_hook = _request_hook, hook
    return previous


class _Library:
    """Creates requests and transports of the HTTP library for one gateway."""

    def __init__(self, url: str, name: str, transport: object | None, network: Network) -> None:
        self.httpx: Any = importlib.import_module(name)
        # `SSLError` is included, because httpx does not convert TLS errors after the handshake to its own exceptions.
        self.errors = (self.httpx.RequestError, ssl.SSLError)
        self.uses_network = transport is None or isinstance(
            transport, (self.httpx.HTTPTransport, self.httpx.AsyncHTTPTransport)
        )
        self._gateway_url = url
        self.is_given = transport is not None
        self._transport = transport
        self._network = network
        self._context: ssl.SSLContext | None = None
        # Parsed URLs are cached: parsing takes tens of microseconds, and nearly all requests have one of two URLs.
        self._url = lru_cache(maxsize=16)(self.httpx.URL)

    def transport(self, kind: str) -> Any:
        """Return the transport that the application passed, or else a new one.

        `kind` is the base class: `BaseTransport` for synchronous calls, `AsyncBaseTransport` for asynchronous ones.
        """
        if self._transport is not None:
            if not isinstance(self._transport, getattr(self.httpx, kind)):
                calls = "synchronous" if kind == "BaseTransport" else "asynchronous"
                raise ConfigurationError(
                    f"transport is a {type(self._transport).__name__!r} and not a "
                    f"{self.httpx.__name__}.{kind}, which {calls} calls need; pass an object of a class "
                    "that supports synchronous and asynchronous calls"
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
            # The messages of other errors are omitted, because they may contain a part of a proxy's password.
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
                f"the gateway's url is not valid for the HTTP library ({describe(error)}); correct TOOLGATE_URL"
            ) from error

    def look_up(self, seconds: float) -> int:
        """Return the number of IP addresses of the gateway or proxy, or 1 if the application passed a transport.

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
            message = f"DNS did not return an address for the host {host!r} before the timeout"
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
    """A transport of the HTTP library, and the sockets that it has opened.

    If the SDK creates the connection, only one request at a time uses it, so that `abort` ends only this request. If
    the application passed a transport, all requests share one connection.
    """

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.sockets = weakref.WeakSet[socket.socket]()
        self.idle_since = 0.0

    def add(self, stream: Any) -> None:
        """Store the socket of a network stream, so that `abort` can shut it down and a forked child can close it."""
        opened = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(opened, socket.socket):
            self.sockets.add(opened)

    def abort(self) -> None:
        """Shut the sockets down, which ends the request that another thread has in progress."""
        for each in list(self.sockets):
            with suppress(OSError):
                # `SSLSocket.shutdown` is not used, because it is not safe while another thread reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)


class _Pool:
    """Connection pool of one process, with a limit of concurrent requests.

    If the application passed a transport, all requests share this transport.
    """

    def __init__(self, library: _Library) -> None:
        self.slots = {
            False: threading.BoundedSemaphore(_MAX_REQUESTS),
            True: threading.BoundedSemaphore(_MAX_LONG_POLLS),
        }
        # Number of IP addresses of the host; 0 before the look-up. httpx tries the addresses one by one and applies
        # the connect time-out to each. The time-out is therefore divided by this number.
        self.addresses = 0
        self._library = library
        self._shared = _Connection(library.transport("BaseTransport")) if library.is_given else None
        self._idle: list[_Connection] = []
        self._connections = weakref.WeakSet[_Connection]()
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[_Connection]:
        """Reserve a connection for a `with` block."""
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
        """Close the connections; a connection that is in use is closed after its request."""
        self._is_closed = True
        self._close_idle(0)

    def close_sockets(self) -> None:
        """Close a forked child's copies of the parent's sockets, without sending anything to the server."""
        for connection in [*self._connections, *filter(None, [self._shared])]:
            for each in list(connection.sockets):
                each.close()

    def _close_idle(self, limit: int) -> None:
        """Close idle connections that have expired; then close the oldest ones until at most `limit` are left."""
        if self._shared is not None:
            if not limit:
                self._shared.transport.close()
            return
        expired = time.monotonic() - _IDLE_SECONDS
        # If the list is empty, or another thread takes the last idle connection during the loop, an `IndexError` ends
        # the loop.
        with suppress(IndexError):
            while len(self._idle) > limit or self._idle[0].idle_since < expired:
                self._idle.pop(0).transport.close()


class HttpSender:
    """Sends requests from any thread, with a connection pool for each process.

    Args:
        url: Address of the gateway.
        library: Import name of the HTTP library.
        transport: A transport of that library that replaces the network.
        clock: Function that returns monotonic seconds.
        network: Certificates, and a proxy that takes precedence over proxies in environment variables.
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
        # Each process id has its own pool, because a parent and its forked child must not use the same connection.
        self._pools: dict[int, _Pool] = {}
        # The finalizer must not run at the end of the process, because it could close connections while the outbox (the
        # local queue of log entries) still sends entries. `_close_at_exit` closes the connections later.
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
        """Send `request`; yield the response without its body, and an iterator that reads the body in chunks.

        Args:
            request: HTTP request to send.
            seconds: Time-out in seconds, for each step such as connecting and for each chunk.

        Raises:
            TransportError: If there is no complete response, or the connection fails inside the `with` block.
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
            # The host is looked up before each connection, because the time-outs of httpx do not apply to DNS look-ups.
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
        watch = start_watch(left + _GRACE, connection.abort)
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
        finally:
            watch.done = True
        return exchange.response()

    def _pool(self) -> _Pool:
        pool = self._pools.get(os.getpid())
        if pool is None:
            # If two threads create a pool at the same time, the second pool is discarded; it has no connections yet.
            pool = self._pools.setdefault(os.getpid(), _Pool(self._library))
        return pool


class AsyncHttpSender:
    """Sends requests from any task, with a connection pool for each event loop.

    Each pool is closed by a suspended asynchronous generator, because `asyncio.run` ends such generators before it
    closes the event loop.

    Args:
        url: Address of the gateway.
        library: Import name of the HTTP library.
        transport: A transport of that library that replaces the network.
        network: Certificates, and a proxy that takes precedence over proxies in environment variables.
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
        # For requests over the network, the time-outs of httpx are disabled, because they would end a request whose
        # response arrived while the event loop was blocked. Only `AsyncDeadline` limits the time.
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
        """Close the connections of the running event loop; other connections close with their event loop."""
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
    """Connection pool of one event loop, with a limit of concurrent requests."""

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


def _no_slot(seconds: float) -> TransportError:
    return TransportError(
        f"the request was not sent within {seconds:.1f} s, because this process has too many other requests "
        "to the gateway in progress; make fewer calls at the same time",
        unsent=True,
    )


_senders: Final[weakref.WeakSet[HttpSender]] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    """Close all connections when the process ends; the outbox's handler, which is registered later, runs before."""
    for sender in list(_senders):
        sender.close()


def _close_all(pools: dict[int, _Pool]) -> None:
    while pools:
        process, pool = pools.popitem()
        if process == os.getpid():
            pool.close()
        else:
            # This pool belongs to the parent of this forked process. Its transports may contain locks that nothing
            # releases in this process, so only the sockets are closed, which need no lock.
            pool.close_sockets()
