"""State of one guard: settings, HTTP clients and the outbox of log entries.

Modules that are needed only when a guarded call is made, such as the HTTP clients, are imported at the first call.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolgate._capture.serializer import Fingerprinter
from toolgate._outbox.recorder import Recorder
from toolgate._process_state import pending_approvals_at
from toolgate._settings import Place, Settings
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._call import OnHold
    from toolgate._drivers import AsyncDriver, Driver
    from toolgate._http.client import AsyncGatewayClient, GatewayClient
    from toolgate._http.retry import CircuitBreaker
    from toolgate._outbox.sender import Sender

__all__ = ["GuardState"]


class GuardState:
    """State that all calls of one guard share.

    Args:
        settings: Settings of the guard.
        transport: Transport object of the HTTP library, or a gateway in this process; None for the network.
        place: Folder and limits of the outbox, which stores log entries.

    Attributes:
        clock: Returns monotonic seconds; a gateway in this process may have its own clock (attribute `clock`).
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
        """Return a new driver, which performs the I/O of one synchronous call."""
        from toolgate._drivers import Driver

        return Driver(self.client(), self.recorder, on_hold, getattr(self.transport, "sleep", time.sleep))

    def async_driver(self, on_hold: OnHold) -> AsyncDriver:
        """Return a new driver, which performs the I/O of one asynchronous call."""
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
        """Return this object if a call may begin.

        Raises:
            ConfigurationError: If the guard is closed.
        """
        if self._closed_at_exit:
            raise ConfigurationError(
                "the embedded gateway has closed because the Python interpreter is shutting down; make the last "
                "guarded call "
                "before the program ends, not in an atexit handler"
            )
        if self._closed:
            raise ConfigurationError(
                "this Guard is closed; create a new Guard, or close it only after the last call"
            )
        return self

    def close(self) -> None:
        """Send queued log entries within the settings' `timeout`, and close; calls in progress can still finish."""
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
        """Close the guard when the interpreter shuts down. Later calls raise an error that states this reason."""
        self._closed_at_exit = not self._closed
        self.close()

    async def aclose(self) -> None:
        """Asynchronous form of `close`, which also closes the connections of the running event loop."""
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
            # The gateway is closed in a thread, because closing takes some time and would block the event loop.
            await asyncio.to_thread(close_gateway)

    def _close_gateway(self) -> Callable[[], None] | None:
        # A gateway in this process is recognized by its method `guard_closed`, and not with `isinstance`: importing its
        # class is slow, and most applications do not use it.
        close: Callable[[], None] | None = getattr(self.transport, "guard_closed", None)
        return close

    def _shared_breaker(self) -> CircuitBreaker:
        from toolgate._http.retry import CircuitBreaker

        breaker = self._breaker = self._breaker or CircuitBreaker(self.settings.url, self.clock)
        return breaker

    def _make_sender(self, place: Place) -> Sender:
        from toolgate._outbox.delivery import BatchSender
        from toolgate._outbox.sender import make_sender

        return make_sender(self.settings, place, lambda: BatchSender(self.settings, self.transport))

    def _key_scope(self) -> tuple[str, str] | None:
        """Return the organization and environment of the API key; None until the gateway has sent them."""
        client, async_client = self._client, self._async_client
        return (client.key_scope if client else None) or (async_client.key_scope if async_client else None)


# This lock is held only while a client is created, and never during a request.
_creation_lock = threading.Lock()
