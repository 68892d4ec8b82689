"""HTTP client of the command: requests to all replicas in turn, at a limited rate."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from toolgate._capture.jsontext import dumps
from toolgate._http.exchange import Request, TransportError
from toolgate._http.transport import AsyncHttpSender

#: number of parallel callers in tests of races; this number of requests may be sent at once
CALLERS: Final = 64
_TIMEOUT: Final = 30.0
#: maximum number of times that a request is sent again after status 429 or 503
_RETRIES: Final = 10
_LONGEST_PAUSE: Final = 61.0
_TEMPORARY: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class GatewayUnreachable(Exception):
    """The gateway did not respond; the message contains the reason."""


class GatewayOverloaded(Exception):
    """The gateway responded with status 429 or 503 to each attempt; the message contains the response."""


class UnexpectedResponse(Exception):
    """The gateway refused a request that the test needs; the message contains the response."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Response of the gateway; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        """True if the status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the body as JSON; None if it is empty or not JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Call:
    """Request to the gateway.

    Attributes:
        credential: headers that authenticate the request.
        replica: number of the replica; None for the next one in turn.
    """

    method: str
    path: str
    body: Mapping[str, Any] | bytes | None = None
    credential: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    replica: int | None = None


class Throttle:
    """Token bucket that limits the number of requests per second; up to `CALLERS` requests may be sent at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._tokens = float(CALLERS)
        self._at = time.monotonic()
        self._lock = asyncio.Lock()

    async def acquire(self, number: int = 1) -> None:
        """Wait until a number of requests may be sent."""
        async with self._lock:
            self._refill()
            while self._tokens < number:
                await asyncio.sleep((number - self._tokens) / self._rate)
                self._refill()
            self._tokens -= number

    def _refill(self) -> None:
        now = time.monotonic()
        self._tokens = min(float(CALLERS), self._tokens + (now - self._at) * self._rate)
        self._at = now


class ApiClient:
    """Client for all replicas of a gateway.

    Args:
        urls: addresses of the replicas, without a slash at the end.
        rate: maximum number of requests per second.

    Attributes:
        sent: number of requests that were sent.
    """

    def __init__(self, urls: Sequence[str], rate: float) -> None:
        self.urls = tuple(urls)
        self.throttle = Throttle(rate)
        self._senders = [AsyncHttpSender(url) for url in urls]
        self._next = 0
        self.sent = 0

    async def close(self) -> None:
        """Close all connections."""
        for sender in self._senders:
            await sender.aclose()

    async def send(self, call: Call, *, retries: int = _RETRIES) -> Answer:
        """Send a request and return the response. After status 429 or 503, the request is sent again.

        Raises:
            GatewayUnreachable: there is no response.
            GatewayOverloaded: each attempt got the status 429 or 503; not with `retries=0`.
        """
        await self.throttle.acquire()
        return await self._send(call, retries)

    async def together(self, calls: Sequence[Call]) -> list[Answer]:
        """Send up to `CALLERS` requests at the same time, spread over all replicas, and return the responses.

        Raises:
            GatewayUnreachable, GatewayOverloaded: as in `send`.
        """
        await self.throttle.acquire(len(calls))
        return await asyncio.gather(*(self._send(call, _RETRIES) for call in calls))

    async def _send(self, call: Call, retries: int) -> Answer:
        answer = await self._exchange(call)
        for _ in range(retries):
            if answer.status not in _TEMPORARY:
                return answer
            pause = answer.headers.get("retry-after", "1")
            await asyncio.sleep(min(_LONGEST_PAUSE, float(pause) if pause.isdecimal() else 1))
            answer = await self._exchange(call)
        if retries and answer.status in _TEMPORARY:
            raise GatewayOverloaded(f"{call.path}: status {answer.status}, {answer.text[:200]}")
        return answer

    async def _exchange(self, call: Call) -> Answer:
        place = call.replica
        if place is None:
            place, self._next = self._next, (self._next + 1) % len(self.urls)
        body = call.body
        if body is not None and not isinstance(body, bytes):
            body = dumps(dict(body)).encode("utf-8", "surrogatepass")
        headers = {"Content-Type": "application/json", **call.credential, **call.headers}
        # Long polls have their own limit of parallel requests, which is higher than `CALLERS`.
        request = Request(call.method, self.urls[place] + call.path, headers, body, long_poll=True)
        self.sent += 1
        try:
            response = await self._senders[place].send(request, _TIMEOUT)
        except TransportError as error:
            raise GatewayUnreachable(f"{self.urls[place]} does not respond: {error}") from error
        return Answer(response.status, response.headers, response.body)
