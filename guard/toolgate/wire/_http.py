"""The one module that knows the HTTP library: `httpx`, or `httpx2` where `TOOLGATE_HTTP` says so.

Redirects are never followed: the API key goes to the configured address only.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
import threading
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ConfigurationError
from toolgate.network import USUAL, Network
from toolgate.wire.barrier import before_request
from toolgate.wire.budget import keep_budget, spending
from toolgate.wire.closing import close_given_up
from toolgate.wire.exchange import Answer, Clock, Request, TransportFault
from toolgate.wire.faults import Faults, from_a_proxy
from toolgate.wire.within import Within

if TYPE_CHECKING:
    import httpx

__all__ = ["Answer", "AsyncWire", "Request", "TransportFault", "Wire"]

# The gateway's own answers are far smaller; more than this is not the gateway.
_MAX_ANSWER: Final = 4 * 1024 * 1024
# Requests under way at once. The library's own queue looks at every request for every connection,
# so that hundreds of callers would spend their time there; they queue in front of it.
_TURNS: Final = 50
_PATIENT_TURNS: Final = 500
# Bytes that are no text, and so no JSON: what stands for a body nobody can unpack.
_UNREADABLE: Final = b"\xff"
_STEPS: Final = ("connect", "read", "write", "pool")


class Wire:
    """Sends requests from any thread; pools of connections per process.

    Args:
        library: Import name of the HTTP library.
        transport: A transport of that library to use in place of the network.
        clock: Monotonic seconds.
        proxies: Whether the proxies named by the environment are used.
        network: Whom TLS trusts, what it is shown, and a proxy that wins over those.
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
        self._library = _Library(library, transport, proxies=proxies, network=network)
        self._clock = clock
        # Keyed by process: after a fork the parent's connections must not be used by both.
        self._lanes: dict[tuple[int, bool], _Lane] = {}
        weakref.finalize(self, _close_all, self._lanes)

    def send(self, request: Request, seconds: float) -> Answer:
        """Send `request`, giving up after `seconds`.

        Raises:
            TransportFault: If no complete answer came.
            ConfigurationError: If there is no way to send it.
        """
        ends = self._clock() + seconds
        lane = self._lane(patient=request.patient)
        if not lane.turns.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise TransportFault(_no_turn(seconds), unsent=True)
        try:
            with spending(lambda: ends - self._clock()):
                return self._exchange(lane.client, request, ends)
        finally:
            lane.turns.release()

    @contextmanager
    def stream(self, request: Request, seconds: float) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        """Send `request` and hand out its answer as it comes, however long: its head, and the pieces of its body.

        Args:
            request: What is sent.
            seconds: How long each step and each piece may take.

        Raises:
            TransportFault: If no complete answer came, also from inside of the block.
            ConfigurationError: If there is no way to send it.
        """
        client = self._lane(patient=True).client
        try:
            response = self._library.send(client, request, seconds)
            try:
                yield Answer(response.status_code, _headers(response), b""), response.iter_bytes()
            finally:
                response.close()
        except self._library.fault as error:
            raise TransportFault(_describe(error)) from error

    def close(self) -> None:
        """Close the connections; a later `send` opens new ones."""
        _close_all(self._lanes)

    def _exchange(self, client: httpx.Client, request: Request, ends: float) -> Answer:
        heard = _Heard()
        try:
            response = self._library.send(client, request, ends - self._clock())
            try:
                heard.head(response)
                body = b""
                # Also here: a transport that is not the library's own knows no budget.
                for piece in response.iter_bytes():
                    body = _append(body, piece, late=self._clock() > ends)
            except self._library.undecodable:
                body = _UNREADABLE
            finally:
                response.close()
        except TransportFault as error:
            error.answered = error.answered or heard.answered
            raise
        except self._library.fault as error:
            raise heard.fault(error, self._library.faults) from error
        return Answer(response.status_code, heard.headers, body)

    def _lane(self, *, patient: bool) -> _Lane:
        key = (os.getpid(), patient)
        lane = self._lanes.get(key)
        if lane is None:
            # Two threads may both get here; the one that lost closes nothing but an empty pool.
            lane = self._lanes.setdefault(key, _Lane(self._library.client(), _turns(patient=patient)))
        return lane


class AsyncWire:
    """Sends requests from any task; pools of connections per event loop.

    A pool is closed together with its loop: a suspended asynchronous generator holds it, and
    `asyncio.run` finishes those before it closes the loop.

    Args:
        library: Import name of the HTTP library.
        transport: A transport of that library to use in place of the network.
        proxies: Whether the proxies named by the environment are used.
        network: Whom TLS trusts, what it is shown, and a proxy that wins over those.
    """

    def __init__(
        self,
        library: str,
        transport: object | None,
        *,
        proxies: bool = False,
        network: Network = USUAL,
    ) -> None:
        self._library = _Library(library, transport, proxies=proxies, network=network)
        self._pools: dict[asyncio.AbstractEventLoop, _LoopPool] = {}

    async def send(self, request: Request, seconds: float) -> Answer:
        """Send `request`, giving up after `seconds`.

        Raises:
            TransportFault: If no complete answer came.
            ConfigurationError: If there is no way to send it.
        """
        queued, heard = True, _Heard()
        try:
            async with Within(seconds):
                lane = await self._lane(patient=request.patient)
                async with lane.turns:
                    queued = False
                    return await self._exchange(lane.client, request, seconds, heard)
        except TimeoutError as error:
            if queued:
                raise TransportFault(_no_turn(seconds), unsent=True) from error
            raise TransportFault(_no_answer(seconds), answered=heard.answered) from error
        except self._library.fault as error:
            raise heard.fault(error, self._library.faults) from error

    async def aclose(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.keeper.aclose()

    async def _exchange(
        self, client: httpx.AsyncClient, request: Request, seconds: float, heard: _Heard
    ) -> Answer:
        response = await self._library.asend(client, request, seconds)
        try:
            heard.head(response)
            body = b""
            async for piece in response.aiter_bytes():
                body = _append(body, piece, late=False)
        except self._library.undecodable:
            body = _UNREADABLE
        finally:
            await response.aclose()
        return Answer(response.status_code, heard.headers, body)

    async def _lane(self, *, patient: bool) -> _AsyncLane:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for closed in [each for each in list(self._pools) if each.is_closed()]:
                self._pools.pop(closed, None)
            self._pools[loop] = pool = _LoopPool()
            await anext(pool.keeper)
        lane = pool.lanes.get(patient)
        if lane is None:
            turns = asyncio.Semaphore(_PATIENT_TURNS if patient else _TURNS)
            lane = pool.lanes[patient] = _AsyncLane(self._library.async_client(), turns)
        return lane


@dataclass(slots=True)
class _Heard:
    """What came of one request before it failed."""

    answered: bool = False
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def head(self, response: Any) -> None:
        self.headers = _headers(response)
        self.answered = not from_a_proxy(response.status_code, self.headers)

    def fault(self, error: Exception, faults: Faults) -> TransportFault:
        return TransportFault(_describe(error), answered=self.answered or faults.answered(error))


@dataclass(frozen=True, slots=True)
class _Lane:
    client: httpx.Client
    turns: threading.BoundedSemaphore


@dataclass(frozen=True, slots=True)
class _AsyncLane:
    client: httpx.AsyncClient
    turns: asyncio.Semaphore


@dataclass
class _LoopPool:
    lanes: dict[bool, _AsyncLane] = field(default_factory=dict[bool, _AsyncLane])

    def __post_init__(self) -> None:
        self.keeper = _keep(self.lanes)


async def _keep(lanes: dict[bool, _AsyncLane]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        while lanes:
            await lanes.popitem()[1].client.aclose()


class _Library:
    """Makes clients and requests of the HTTP library.

    Args:
        name: Its import name.
        transport: A transport of it to use in place of the network.
        proxies: Whether the proxies named by the environment are used.
        network: Whom TLS trusts, what it is shown, and a proxy that wins over those.
    """

    def __init__(self, name: str, transport: object | None, *, proxies: bool, network: Network) -> None:
        self._httpx: Any = importlib.import_module(name)
        self._core: Any = importlib.import_module(name.replace("httpx", "httpcore"))
        self._transport = transport
        self._proxies = proxies
        self._network = network
        self._tls: Any = None
        # Nearly all requests go to two addresses.
        self._url = lru_cache(maxsize=16)(self._httpx.URL)
        self.faults = Faults(self._httpx)
        # TLS may fail after the handshake; the library lets that through as it is.
        self.fault = (self._httpx.RequestError, ssl.SSLError)
        self.undecodable: type[Exception] = self._httpx.DecodingError

    def client(self) -> httpx.Client:
        """A synchronous client that keeps to the budget of the thread it serves."""
        client: httpx.Client = self._made("Client")
        for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - the proxies' pools as well
            keep_budget(transport, self._core)
        return client

    def async_client(self) -> httpx.AsyncClient:
        """An asynchronous client."""
        client: httpx.AsyncClient = self._made("AsyncClient")
        for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - the proxies' pools as well
            close_given_up(transport, self._core)
        return client

    def send(self, client: httpx.Client, request: Request, seconds: float) -> httpx.Response:
        """Send `request`, each of its steps limited to `seconds`; the answer's body is still to be read.

        By the client's transports and past the client: it would look for cookies, redirects and credentials, of which
        there are none, which takes longer than everything else together.
        """
        built = self._build(request, seconds)
        transport = client._transport_for_url(built.url)  # noqa: SLF001 - which proxy, if any, is the client's to say
        response: httpx.Response = transport.handle_request(built)
        return response

    async def asend(self, client: httpx.AsyncClient, request: Request, seconds: float) -> httpx.Response:
        """As `send`."""
        built = self._build(request, seconds)
        transport = client._transport_for_url(built.url)  # noqa: SLF001 - likewise
        response: httpx.Response = await transport.handle_async_request(built)
        return response

    def _build(self, request: Request, seconds: float) -> Any:
        """`request` as the library's own."""
        if self._reaches_out():
            before_request(request.url)
        try:
            return self._httpx.Request(
                request.method,
                self._url(request.url),
                headers=dict(request.headers),
                content=request.body,
                extensions={"timeout": dict.fromkeys(_STEPS, max(0.0, seconds))},
            )
        except (self._httpx.InvalidURL, ValueError) as error:
            raise ConfigurationError(
                f"no request can be made to this url ({_describe(error)}); set TOOLGATE_URL again"
            ) from error

    def _reaches_out(self) -> bool:
        networks = (self._httpx.HTTPTransport, self._httpx.AsyncHTTPTransport)
        return self._transport is None or isinstance(self._transport, networks)

    def _made(self, kind: str) -> Any:
        self._fits(kind)
        try:
            return getattr(self._httpx, kind)(**self._options())
        except (ImportError, OSError, ValueError, self._httpx.InvalidURL) as error:
            # What is said of an address may hold a part of a proxy's password.
            said = _describe(error) if isinstance(error, (ImportError, OSError)) else type(error).__name__
            raise ConfigurationError(
                f"the HTTP client cannot be made: {said}; look at HTTPS_PROXY, ALL_PROXY, "
                "SSL_CERT_FILE and SSL_CERT_DIR in the environment"
            ) from None

    def _fits(self, kind: str) -> None:
        base = "BaseTransport" if kind == "Client" else "AsyncBaseTransport"
        if self._transport is not None and not isinstance(self._transport, getattr(self._httpx, base)):
            raise ConfigurationError(
                f"transport is a {type(self._transport).__name__!r} and no {self._httpx.__name__}.{base}, which "
                f"{'synchronous' if kind == 'Client' else 'asynchronous'} calls need; use a class that is both"
            )

    def _options(self) -> dict[str, Any]:
        if self._transport is not None:
            return {"follow_redirects": False, "trust_env": False, "transport": self._transport}
        if self._tls is None:
            # Made here, because without trust_env the client would not look at SSL_CERT_FILE either.
            self._tls = self._network.context(self._httpx.create_ssl_context)
        # As many connections as turns are taken; the semaphores are the bound.
        limits = self._httpx.Limits(max_connections=None, max_keepalive_connections=20)
        return {
            "follow_redirects": False,
            "trust_env": self._proxies and self._network.proxy is None,
            "proxy": self._network.proxy,
            "verify": self._tls,
            "limits": limits,
        }


def _turns(*, patient: bool) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(_PATIENT_TURNS if patient else _TURNS)


def _append(body: bytes, piece: bytes, *, late: bool) -> bytes:
    if late:
        raise TransportFault("the answer did not end in time")
    if len(body) + len(piece) > _MAX_ANSWER:
        raise TransportFault(f"the answer is longer than {_MAX_ANSWER} bytes")
    return body + piece


def _headers(response: Any) -> dict[str, str]:
    # As the library's own `items`, which looks at every name for every other.
    headers: dict[str, str] = {}
    for raw, value in response.headers.raw:
        name = raw.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _no_turn(seconds: float) -> str:
    return f"no turn within {seconds:.1f} s: too many requests of this process are under way"


def _no_answer(seconds: float) -> str:
    return f"no answer within {seconds:.1f} s"


def _close_all(lanes: dict[tuple[int, bool], _Lane]) -> None:
    while lanes:
        # Also the parent's, in a forked child: that closes the child's copies, and says nothing on the wire.
        lanes.popitem()[1].client.close()
