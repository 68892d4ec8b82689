"""State of one guard: settings, HTTP clients, recorder. Heavy parts load at the first call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolgate._capture.fingerprint import Fingerprinter
from toolgate._outbox.place import Place
from toolgate._outbox.recorder import Recorder
from toolgate._process_state import pending_approvals_at
from toolgate._settings import Settings
from toolgate._shutdown import ensure_not_finalizing
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._call import OnHold
    from toolgate._drivers import AsyncDriver, Driver
    from toolgate._http.breaker import CircuitBreaker
    from toolgate._http.client import AsyncGatewayClient, GatewayClient
    from toolgate._outbox.sender import Sender

__all__ = ["GuardState"]


class GuardState:
    """Parts that all calls of one guard share.

    Args:
        settings: Settings of the guard.
        transport: Transport of the HTTP library, or an in-process gateway, instead of the network.
        place: Where log entries are stored.

    Attributes:
        clock: Monotonic seconds; an in-process gateway may have its own clock.
    """

    def __init__(self, settings: Settings, transport: object | None, place: Place) -> None:
        self.settings = settings
        self.fingerprinter = Fingerprinter(settings.api_key)
        self.pending_approvals = pending_approvals_at(settings.url)
        self.recorder = Recorder(place, self._make_sender, self._key_scope, settings.timeout)
        self.transport = transport
        self.clock: Callable[[], float] = getattr(transport, "clock", time.monotonic)
        self._closed = False
        self._closed_at_exit = False
        self._breaker: CircuitBreaker | None = None
        self._client: GatewayClient | None = None
        self._async_client: AsyncGatewayClient | None = None

    def driver(self, on_hold: OnHold) -> Driver:
        """Return what performs the effects of one synchronous call."""
        from toolgate._drivers import Driver

        return Driver(self.client(), self.recorder, on_hold, getattr(self.transport, "sleep", time.sleep))

    def async_driver(self, on_hold: OnHold) -> AsyncDriver:
        """Return what performs the effects of one asynchronous call."""
        from toolgate._drivers import AsyncDriver

        sleep = getattr(self.transport, "asleep", asyncio.sleep)
        return AsyncDriver(self.async_client(), self.recorder, on_hold, sleep)

    def client(self) -> GatewayClient:
        """Return the synchronous client, created at the first use."""
        client = self._client
        if client is None:
            from toolgate._http.client import GatewayClient

            with _creation_lock:
                client = self._client = self._client or GatewayClient(
                    self.settings, transport=self.transport, breaker=self._shared_breaker()
                )
        return client

    def async_client(self) -> AsyncGatewayClient:
        """Return the asynchronous client, created at the first use."""
        client = self._async_client
        if client is None:
            from toolgate._http.client import AsyncGatewayClient

            with _creation_lock:
                client = self._async_client = self._async_client or AsyncGatewayClient(
                    self.settings, transport=self.transport, breaker=self._shared_breaker()
                )
        return client

    def ensure_open(self) -> GuardState:
        """Return this object for a call that begins.

        Raises:
            ConfigurationError: If the guard is closed.
            GatewayUnavailable: If the interpreter is finalizing.
        """
        ensure_not_finalizing()
        if self._closed_at_exit:
            raise ConfigurationError(
                "the embedded gateway has closed because the interpreter is shutting down; make the last guarded call "
                "before the program ends, not in an atexit handler"
            )
        if self._closed:
            raise ConfigurationError("this Guard is closed; make a new one, or close it after its last call")
        return self

    def close(self) -> None:
        """Send pending log entries, within the settings' timeout, and close; calls under way still finish."""
        if not self._closed:
            self._closed = True
            if self.recorder.used:
                self.recorder.flush(self.settings.timeout)
                self.recorder.close(self.settings.timeout)
        if self._client is not None:
            self._client.close()
        if (close_gateway := self._close_gateway()) is not None:
            close_gateway()

    def close_at_exit(self) -> None:
        """Close because the interpreter shuts down, before any exit handler runs."""
        self._closed_at_exit = not self._closed
        self.close()

    async def aclose(self) -> None:
        """Close as `close` does, and close the running loop's connections too."""
        if not self._closed:
            self._closed = True
            if self.recorder.used:
                await self.recorder.aflush(self.settings.timeout)
                await asyncio.to_thread(self.recorder.close, self.settings.timeout)
        if self._client is not None:
            self._client.close()
        if self._async_client is not None:
            await self._async_client.aclose()
        if (close_gateway := self._close_gateway()) is not None:
            # Not on the loop: an in-process gateway takes a moment to stop.
            await asyncio.to_thread(close_gateway)

    def _close_gateway(self) -> Callable[[], None] | None:
        # By name and not by class: nothing heavy is imported to find out that there is no in-process gateway.
        close: Callable[[], None] | None = getattr(self.transport, "guard_closed", None)
        return close

    def _shared_breaker(self) -> CircuitBreaker:
        from toolgate._http.breaker import CircuitBreaker

        breaker = self._breaker = self._breaker or CircuitBreaker(self.settings.url, self.clock)
        return breaker

    def _make_sender(self, place: Place) -> Sender:
        from toolgate._outbox.delivery import BatchSender
        from toolgate._outbox.sender import make_sender

        return make_sender(self.settings, place, lambda: BatchSender(self.settings, self.transport))

    def _key_scope(self) -> tuple[str, str] | None:
        """Return the organization and environment of the API key, once a response contained them."""
        client, async_client = self._client, self._async_client
        return (client.key_scope if client else None) or (async_client.key_scope if async_client else None)


# Held while an object is created, never during a request.
_creation_lock = threading.Lock()
