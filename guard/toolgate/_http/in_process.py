"""A gateway in this process: asked without network, by the clock it says."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod

from toolgate._http.messages import Answer, Request

__all__ = ["AsyncLocalWire", "LocalGateway", "LocalWire"]


class LocalGateway(ABC):
    """What a guard asks in place of the network; given to it as its transport.

    Usable from any thread and event loop.
    """

    @abstractmethod
    def send(self, request: Request, seconds: float) -> Answer:
        """Answer `request` within `seconds`.

        Raises:
            TransportFault: No answer came.
            ConfigurationError: The gateway cannot be asked any more.
        """

    @abstractmethod
    async def asend(self, request: Request, seconds: float) -> Answer:
        """As `send`."""

    def clock(self) -> float:
        """Monotonic seconds, by which deadlines and waits are counted."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """As `sleep`."""
        await asyncio.sleep(seconds)

    def guard_closed(self) -> None:  # noqa: B027 - most have nothing to do then
        """The guard that asked is closed; may be called again."""


class LocalWire:
    """Sends requests to a gateway in this process.

    Args:
        gateway: The gateway.
    """

    def __init__(self, gateway: LocalGateway) -> None:
        self._gateway = gateway

    def send(self, request: Request, seconds: float) -> Answer:
        """As `LocalGateway.send`."""
        return self._gateway.send(request, seconds)

    def close(self) -> None:
        """There are no connections to close."""


class AsyncLocalWire:
    """Sends requests to a gateway in this process, asynchronously.

    Args:
        gateway: The gateway.
    """

    def __init__(self, gateway: LocalGateway) -> None:
        self._gateway = gateway

    async def send(self, request: Request, seconds: float) -> Answer:
        """As `LocalGateway.asend`."""
        return await self._gateway.asend(request, seconds)

    async def aclose(self) -> None:
        """There are no connections to close."""
