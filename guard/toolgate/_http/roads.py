"""The two roads of a request: by connections alone, and by a client of the HTTP library where one is needed.

What stands above the connections — requests, responses, cookies, redirects, credentials — takes longer than all that a guarded
call does itself, and none of it is used here. A transport of the caller's own and proxies are the library's to serve.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from toolgate._http.barrier import before_request
from toolgate._http.kept import Kept
from toolgate._http.messages import Request
from toolgate.errors import ConfigurationError

__all__ = [
    "Arriving",
    "AsyncArriving",
    "AsyncRoad",
    "Building",
    "ByClient",
    "ByKept",
    "ByPool",
    "Road",
    "describe",
]

_STEPS: Final = ("connect", "read", "write", "pool")
_ENCODED: Final = "content-encoding"
#: verbs whose requests say how long they are, also where they have no body
_WITH_LENGTH: Final = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class Arriving:
    """An answer whose body is still to be read.

    Attributes:
        status: Its status.
        headers: Its headers, names in lower case.
        pieces: Its body, unpacked.
        close: Gives the connection back.
    """

    status: int
    headers: dict[str, str]
    pieces: Iterable[bytes]
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class AsyncArriving:
    """As `Arriving`, asynchronously."""

    status: int
    headers: dict[str, str]
    pieces: AsyncIterable[bytes]
    aclose: Callable[[], Awaitable[None]]


class Road(Protocol):
    """Sends requests from any thread."""

    def send(self, request: Request, seconds: float) -> Arriving:
        """Send `request`, each of its steps limited to `seconds`; raises what the HTTP library raises."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class AsyncRoad(Protocol):
    """Sends requests from any task of one event loop."""

    async def asend(self, request: Request, seconds: float) -> AsyncArriving:
        """As `Road.send`."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class Building:
    """Makes requests of the HTTP library and of its library for connections.

    Args:
        httpx: The library.
        core: Its library for connections, `httpcore` or its successor.
    """

    def __init__(self, httpx: Any, core: Any) -> None:
        self._httpx = httpx
        self._core = core
        # Nearly all requests go to two addresses.
        self._url = lru_cache(maxsize=16)(httpx.URL)
        self._address = lru_cache(maxsize=16)(self._addressed)

    def for_client(self, request: Request, seconds: float) -> Any:
        """`request` for the library's transports.

        Raises:
            ConfigurationError: It cannot be made.
        """
        try:
            return self._httpx.Request(
                request.method,
                self._url(request.url),
                headers=dict(request.headers),
                content=request.body,
                extensions={"timeout": _limits(seconds)},
            )
        except (self._httpx.InvalidURL, ValueError) as error:
            raise _unsendable(error) from error

    def for_pool(self, request: Request, seconds: float) -> Any:
        """`request` for connections and pools, the same on the wire.

        Raises:
            ConfigurationError: It cannot be made.
        """
        try:
            host, address = self._address(request.url)
            headers, body = [(b"Host", host)], request.body
            if not body and request.method in _WITH_LENGTH:
                headers.append((b"Content-Length", b"0"))
            for name, value in request.headers.items():
                headers.append((name.encode("ascii"), value.encode("ascii")))
            if body:
                headers.append((b"Content-Length", b"%d" % len(body)))
            return self._core.Request(
                request.method,
                address,
                headers=headers,
                content=body,
                extensions={"timeout": _limits(seconds)},
            )
        except (self._httpx.InvalidURL, ValueError) as error:
            raise _unsendable(error) from error

    def unpacking(self, answer: Any) -> Any:
        """The library's response with the pool's answer in it, which unpacks it."""
        return self._httpx.Response(answer.status, headers=answer.headers, content=answer.stream)

    def _addressed(self, text: str) -> tuple[bytes, Any]:
        url = self._url(text)
        address = self._core.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        return url.netloc, address


class ByKept:
    """Sends by kept connections.

    Args:
        kept: The connections.
        building: Makes their requests.
    """

    def __init__(self, kept: Kept, building: Building) -> None:
        self._kept = kept
        self._building = building

    def send(self, request: Request, seconds: float) -> Arriving:
        """As `Road.send`."""
        before_request(request.url)
        answer, give_back = self._kept.send(self._building.for_pool(request, seconds))
        headers = _headers(answer.headers)
        packed = _ENCODED in headers
        pieces = self._building.unpacking(answer).iter_bytes() if packed else answer.stream
        return Arriving(answer.status, headers, pieces, give_back)

    def close(self) -> None:
        """Close the connections."""
        self._kept.close()


class ByPool:
    """Sends by a pool of connections, asynchronously.

    Args:
        pool: The pool.
        building: Makes its requests.
    """

    def __init__(self, pool: Any, building: Building) -> None:
        self._pool = pool
        self._building = building

    async def asend(self, request: Request, seconds: float) -> AsyncArriving:
        """As `Road.send`."""
        before_request(request.url)
        answer = await self._pool.handle_async_request(self._building.for_pool(request, seconds))
        headers = _headers(answer.headers)
        packed = _ENCODED in headers
        pieces = self._building.unpacking(answer).aiter_bytes() if packed else answer.stream
        return AsyncArriving(answer.status, headers, pieces, answer.stream.aclose)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


class ByClient:
    """Sends by the transports of a client, synchronous or asynchronous, and past the client.

    Args:
        client: The client.
        building: Makes its requests.
        network: Whether it reaches out to the network.
    """

    def __init__(self, client: Any, building: Building, *, network: bool) -> None:
        self._client = client
        self._building = building
        self._network = network

    def send(self, request: Request, seconds: float) -> Arriving:
        """As `Road.send`."""
        built, transport = self._prepared(request, seconds)
        answer = transport.handle_request(built)
        return Arriving(answer.status_code, _headers(answer.headers.raw), answer.iter_bytes(), answer.close)

    async def asend(self, request: Request, seconds: float) -> AsyncArriving:
        """As `Road.send`."""
        built, transport = self._prepared(request, seconds)
        answer = await transport.handle_async_request(built)
        return AsyncArriving(
            answer.status_code, _headers(answer.headers.raw), answer.aiter_bytes(), answer.aclose
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _prepared(self, request: Request, seconds: float) -> tuple[Any, Any]:
        if self._network:
            before_request(request.url)
        built = self._building.for_client(request, seconds)
        return built, self._client._transport_for_url(built.url)  # noqa: SLF001 - which proxy, if any, is the client's to say


def describe(error: Exception) -> str:
    """An exception in words."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    # As the library's own `items`, which looks at every name for every other.
    headers: dict[str, str] = {}
    for each, value in raw:
        name, text = _name(each), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


@lru_cache(maxsize=256)
def _name(raw: bytes) -> str:
    return raw.decode("latin-1").lower()


def _limits(seconds: float) -> dict[str, float]:
    return dict.fromkeys(_STEPS, max(0.0, seconds))


def _unsendable(error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"no request can be made to this url ({describe(error)}); set TOOLGATE_URL again"
    )
