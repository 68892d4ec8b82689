"""Requests over the network through the public API of httpx (or httpx2), each within one deadline.

Redirects are never followed: the API key goes to the configured address only.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import ssl
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final
from urllib.request import getproxies

from toolgate._http.connection import Connection, Connections, classify, describe
from toolgate._http.deadline import AsyncDeadline, watchdog
from toolgate._http.messages import Answer, Clock, Request, TransportFault
from toolgate._http.network import USUAL, Network
from toolgate._http.resolver import look_up
from toolgate.errors import ConfigurationError

__all__ = ["Answer", "AsyncWire", "Request", "TransportFault", "Wire", "set_request_hook"]

# Responses of the gateway are far smaller.
_MAX_ANSWER: Final = 4 * 1024 * 1024
# Requests in progress at once: checks and log entries, and long polls. httpx's pool looks at every connection
# for every request, so callers queue here and not there.
_TURNS: Final = 50
_PATIENT_TURNS: Final = 500
_IDLE: Final = 20
_IDLE_SECONDS: Final = 5.0
# The shortest time-out of a step. A response that has arrived already is read, even after the deadline.
_SHORTEST: Final = 0.001
# Stands for a body that cannot be decompressed; it is not valid UTF-8, so it is never read as JSON.
_UNREADABLE: Final = b"\xff"
# Time-outs of httpx end a request first; the watchdog ends it if the peer keeps sending single bytes.
_GRACE: Final = 0.05

_request_hook: Callable[[str], None] | None = None


def set_request_hook(hook: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Set a function that is called with the URL before each request to the network, and return the previous one.

    The pytest plugin blocks the network with it: an exception of the hook stops the request.
    """
    global _request_hook
    previous, _request_hook = _request_hook, hook
    return previous


class _Factory:
    """Makes clients and requests of the HTTP library that `TOOLGATE_HTTP` names."""

    def __init__(self, library: str, transport: object | None, *, proxies: bool, network: Network) -> None:
        self.httpx: Any = importlib.import_module(library)
        # A TLS failure after the handshake is not wrapped by httpx.
        self.errors = (self.httpx.RequestError, ssl.SSLError)
        self.transport = transport
        self.is_direct = transport is None and network.proxy is None and not (proxies and _has_proxies())
        self._proxies = proxies
        self._network = network
        # Nearly all requests have one of two addresses; parsing one takes tens of microseconds.
        self._url = lru_cache(maxsize=16)(self.httpx.URL)
        self._context: ssl.SSLContext | None = None
        networks = (self.httpx.HTTPTransport, self.httpx.AsyncHTTPTransport)
        self.uses_network = transport is None or isinstance(transport, networks)

    def client(self, kind: str) -> Any:
        base = "BaseTransport" if kind == "Client" else "AsyncBaseTransport"
        if self.transport is not None and not isinstance(self.transport, getattr(self.httpx, base)):
            calls = "synchronous" if kind == "Client" else "asynchronous"
            raise ConfigurationError(
                f"transport is a {type(self.transport).__name__!r} and not a {self.httpx.__name__}.{base}, which "
                f"{calls} calls need; use a class that is both"
            )
        try:
            return getattr(self.httpx, kind)(**self._options())
        except (ImportError, OSError, ValueError, self.httpx.InvalidURL) as error:
            # The message of other errors may contain a part of a proxy's password.
            reason = describe(error) if isinstance(error, (ImportError, OSError)) else type(error).__name__
            raise ConfigurationError(
                f"the HTTP client cannot be created: {reason}; check HTTPS_PROXY, ALL_PROXY, "
                "SSL_CERT_FILE and SSL_CERT_DIR in the environment"
            ) from None

    def request(self, request: Request, timeout: dict[str, float | None], trace: object) -> Any:
        if _request_hook is not None and self.uses_network:
            _request_hook(request.url)
        try:
            return self.httpx.Request(
                request.method,
                self._url(request.url),
                headers=dict(request.headers),
                content=request.body,
                extensions={"timeout": timeout, "trace": trace},
            )
        except (self.httpx.InvalidURL, ValueError) as error:
            raise ConfigurationError(
                f"no request can be made to this url ({describe(error)}); set TOOLGATE_URL again"
            ) from error

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"follow_redirects": False, "trust_env": False}
        if self.transport is not None:
            return {**options, "transport": self.transport}
        if self._context is None:
            # Without trust_env, httpx would ignore SSL_CERT_FILE.
            self._context = self._network.context(self.httpx.create_ssl_context)
        return {
            "follow_redirects": False,
            "trust_env": self._proxies and self._network.proxy is None,
            "proxy": self._network.proxy,
            "verify": self._context,
            "limits": self.httpx.Limits(
                max_connections=None, max_keepalive_connections=_IDLE, keepalive_expiry=_IDLE_SECONDS
            ),
        }


class _Pool:
    """The HTTP client of one process."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.connections = Connections()
        self.turns = {
            False: threading.BoundedSemaphore(_TURNS),
            True: threading.BoundedSemaphore(_PATIENT_TURNS),
        }


class Wire:
    """Sends requests from any thread, with one HTTP client per process.

    Args:
        library: Import name of the HTTP library.
        transport: A transport of that library to use in place of the network.
        clock: Monotonic seconds.
        proxies: Use the proxies that the environment names.
        network: Certificates, and a proxy that takes precedence over those of the environment.
    """

    def __init__(
        self,
        library: str,
        transport: object | None,
        clock: Clock,
        *,
        proxies: bool = False,
        network: Network = USUAL,
    ) -> None:
        self._factory = _Factory(library, transport, proxies=proxies, network=network)
        self._clock = clock
        # By process id: parent and child must not use one connection.
        self._pools: dict[int, _Pool] = {}
        # Not at the end of the process: the outbox still sends then, see `_close_at_exit`.
        weakref.finalize(self, _close_all, self._pools).atexit = False
        _wires.add(self)

    def send(self, request: Request, seconds: float) -> Answer:
        """Send `request` and return the response, both within `seconds`.

        Raises:
            TransportFault: If no complete response arrived.
            ConfigurationError: If the request cannot be sent at all.
        """
        ends, pool = self._clock() + seconds, self._pool()
        turns = pool.turns[request.patient]
        if not turns.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise TransportFault(_no_turn(seconds), unsent=True)
        try:
            return self._send(pool, request, ends, seconds)
        finally:
            turns.release()

    @contextmanager
    def stream(self, request: Request, seconds: float) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        """Send `request` and yield the head of the response and the chunks of its body, however long it is.

        Args:
            request: The request.
            seconds: Time-out of each step and each chunk.

        Raises:
            TransportFault: If no complete response arrived, also from inside of the block.
            ConfigurationError: If the request cannot be sent at all.
        """
        pool = self._pool()
        connection = Connection(pool.connections)
        built = self._factory.request(request, dict.fromkeys(_STEPS, seconds), connection.trace)
        try:
            response = pool.client.send(built, stream=True)
            try:
                yield Answer(response.status_code, _headers(response), b""), response.iter_bytes()
            finally:
                response.close()
        except self._factory.errors as error:
            raise TransportFault(describe(error)) from error

    def close(self) -> None:
        """Close the connections; a later `send` opens new ones."""
        _close_all(self._pools)

    def _send(self, pool: _Pool, request: Request, ends: float, seconds: float) -> Answer:
        factory = self._factory
        timeout: dict[str, float | None] = {}

        def limit() -> None:
            # Each step may take what is left of the deadline.
            left = max(_SHORTEST, ends - self._clock())
            timeout.update(dict.fromkeys(_STEPS, left))

        limit()
        connection = Connection(pool.connections, limit)
        built = factory.request(request, timeout, connection.trace)
        if factory.is_direct and not pool.connections:
            _resolve(built.url, seconds)
        with watchdog(seconds + _GRACE, connection.abort) as watch:
            try:
                response = pool.client.send(built, stream=True)
                headers = _headers(response)
                try:
                    connection.receive_head(response.status_code, headers)
                    body = b""
                    for chunk in response.iter_bytes():
                        body = _append(body, chunk, late=self._clock() > ends)
                except factory.httpx.DecodingError:
                    body = _UNREADABLE
                finally:
                    response.close()
            except TransportFault as error:
                error.answered = error.answered or connection.answered
                raise
            except factory.errors as error:
                if watch.fired:
                    raise TransportFault(
                        _no_answer(seconds), answered=connection.answered, reached=connection.established
                    ) from error
                raise classify(error, connection, factory.httpx) from error
            except RuntimeError as error:
                if not pool.client.is_closed:
                    raise
                raise TransportFault("the connections were closed meanwhile", answered=False) from error
        return Answer(response.status_code, headers, body)

    def _pool(self) -> _Pool:
        pool = self._pools.get(os.getpid())
        if pool is None:
            # Two threads may both arrive here; the loser's client has no connections yet.
            pool = self._pools.setdefault(os.getpid(), _Pool(self._factory.client("Client")))
        return pool


class AsyncWire:
    """Sends requests from any task, with one HTTP client per event loop.

    A client is closed together with its loop: a suspended asynchronous generator holds it, and
    `asyncio.run` finishes those before it closes the loop.

    Args:
        library: Import name of the HTTP library.
        transport: A transport of that library to use in place of the network.
        proxies: Use the proxies that the environment names.
        network: Certificates, and a proxy that takes precedence over those of the environment.
    """

    def __init__(
        self,
        library: str,
        transport: object | None,
        *,
        proxies: bool = False,
        network: Network = USUAL,
    ) -> None:
        self._factory = _Factory(library, transport, proxies=proxies, network=network)
        self._pools: dict[asyncio.AbstractEventLoop, _LoopPool] = {}

    async def send(self, request: Request, seconds: float) -> Answer:
        """Send `request` and return the response, both within `seconds`.

        Raises:
            TransportFault: If no complete response arrived.
            ConfigurationError: If the request cannot be sent at all.
        """
        connection, queued = Connection(), True
        try:
            async with AsyncDeadline(seconds):
                pool = await self._pool()
                async with pool.turns[request.patient]:
                    queued = False
                    return await self._send(pool, request, connection, seconds)
        except TimeoutError as error:
            if queued:
                raise TransportFault(_no_turn(seconds), unsent=True) from error
            raise TransportFault(
                _no_answer(seconds), answered=connection.answered, reached=connection.may_have_sent
            ) from error
        except self._factory.errors as error:
            raise classify(error, connection, self._factory.httpx) from error

    async def aclose(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.keeper.aclose()

    async def _send(
        self, pool: _LoopPool, request: Request, connection: Connection, seconds: float
    ) -> Answer:
        # On the network no time-outs of single steps: they would end before a response is read that
        # arrived while the event loop was blocked.
        limit = None if self._factory.uses_network else max(0.0, seconds)
        built = self._factory.request(request, dict.fromkeys(_STEPS, limit), connection.atrace)
        try:
            response = await pool.client.send(built, stream=True)
        except BaseException:
            # httpx does not close a connection whose TLS handshake was cancelled.
            await connection.aclose_unfinished()
            raise
        headers = _headers(response)
        try:
            connection.receive_head(response.status_code, headers)
            body = b""
            async for chunk in response.aiter_bytes():
                body = _append(body, chunk, late=False)
        except self._factory.httpx.DecodingError:
            body = _UNREADABLE
        except TransportFault as error:
            error.answered = True
            raise
        finally:
            await response.aclose()
        return Answer(response.status_code, headers, body)

    async def _pool(self) -> _LoopPool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for closed in [each for each in list(self._pools) if each.is_closed()]:
                self._pools.pop(closed, None)
            self._pools[loop] = pool = _LoopPool(self._factory.client("AsyncClient"))
            await anext(pool.keeper)
        return pool


class _LoopPool:
    """The HTTP client of one event loop."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.turns = {False: asyncio.Semaphore(_TURNS), True: asyncio.Semaphore(_PATIENT_TURNS)}
        self.keeper = _close_with_loop(client)


async def _close_with_loop(client: Any) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.aclose()


_STEPS: Final = ("connect", "read", "write", "pool")


def _has_proxies() -> bool:
    named = getproxies()
    return any(named.get(scheme) for scheme in ("http", "https", "all"))


def _resolve(url: Any, seconds: float) -> None:
    """Look up the host within the deadline: the time-out of httpx does not cover a resolver that stalls."""
    with suppress(OSError):
        try:
            look_up(url.host, url.port or (443 if url.scheme == "https" else 80), seconds)
        except TimeoutError as error:
            raise TransportFault(str(error), answered=False, reached=False) from error


def _headers(response: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw, value in response.headers.raw:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def _append(body: bytes, chunk: bytes, *, late: bool) -> bytes:
    if late:
        raise TransportFault("the answer did not end in time")
    if len(body) + len(chunk) > _MAX_ANSWER:
        raise TransportFault(f"the answer is longer than {_MAX_ANSWER} bytes")
    return body + chunk


def _no_turn(seconds: float) -> str:
    return f"no turn within {seconds:.1f} s: too many requests of this process are under way"


def _no_answer(seconds: float) -> str:
    return f"no answer within {seconds:.1f} s"


_wires: Final[weakref.WeakSet[Wire]] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    """Close all connections; exit handlers run in reverse order, and the outbox registers its own later."""
    for wire in list(_wires):
        wire.close()


def _close_all(pools: dict[int, _Pool]) -> None:
    while pools:
        process, pool = pools.popitem()
        if process == os.getpid():
            pool.client.close()
        else:
            # In a forked child the parent's client may hold a lock for ever; its sockets have none.
            pool.connections.close()
