"""Requests, responses, and the interface of gateways that run in this process."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Clock", "InProcessGateway", "Request", "Response", "TransportError"]

Clock: TypeAlias = Callable[[], float]


class TransportError(Exception):
    """A request got no complete response.

    Attributes:
        answered: Whether a gateway, or another server at the gateway's address, sent a part of a response or a TLS
            alert.
        reached: Whether a gateway may have received the request, because a connection was established.
        unsent: Whether the request was never sent, because too many requests of this process were in progress.
    """

    def __init__(
        self, message: str, *, answered: bool = True, reached: bool = True, unsent: bool = False
    ) -> None:
        super().__init__(message)
        self.answered = answered
        self.reached = reached
        self.unsent = unsent


@dataclass(frozen=True, slots=True)
class Request:
    """HTTP request.

    Attributes:
        method: HTTP method.
        url: Absolute URL.
        headers: HTTP headers; excluded from `repr`, because they contain the API key.
        body: JSON; excluded from `repr`, because it contains arguments of tools.
        long_poll: Whether the gateway may delay its response. The number of concurrent long polls has a separate limit.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    long_poll: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """Complete HTTP response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class InProcessGateway(ABC):
    """Gateway in this process, such as a fake for tests; it is passed to a `Guard` as the option `transport`.

    Its methods may be called from any thread and event loop.
    """

    @abstractmethod
    def send(self, request: Request, seconds: float) -> Response:
        """Return the response to `request` within `seconds`.

        Raises:
            TransportError: If there is no response.
            ConfigurationError: If the gateway cannot be used any more.
        """

    @abstractmethod
    async def asend(self, request: Request, seconds: float) -> Response:
        """Asynchronous form of `send`."""

    def clock(self) -> float:
        """Return the current time in monotonic seconds; a `Guard` uses this clock for deadlines and pauses."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Pause for `seconds`."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Asynchronous form of `sleep`."""
        await asyncio.sleep(seconds)

    def guard_closed(self) -> None:  # noqa: B027 - subclasses need not override it
        """Clean up after a `Guard` that uses this gateway was closed; may be called more than once."""
