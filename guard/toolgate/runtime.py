"""What the calls of one guard share: settings, clients, recorder. Heavy parts load at the first call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolgate._capture.fingerprint import Fingerprinter
from toolgate._outbox.place import Place
from toolgate._outbox.recorder import Recorder
from toolgate.errors import ConfigurationError
from toolgate.settings import Settings
from toolgate.shutdown import ensure_not_finalizing
from toolgate.waiters import waiters_at

if TYPE_CHECKING:
    from toolgate._http.breaker import CircuitBreaker
    from toolgate._http.client import AsyncGatewayClient, GatewayClient
    from toolgate._outbox.sender import Sender

__all__ = ["Runtime"]


class Runtime:
    """The shared parts of one guard.

    Args:
        settings: Where the gateway is, and as whom.
        transport: A transport of the HTTP library in place of the network.
        place: Where log entries are kept.
    """

    def __init__(self, settings: Settings, transport: object | None, place: Place) -> None:
        self.settings = settings
        self.hider = Fingerprinter(settings.api_key)
        self.waiters = waiters_at(settings.url)
        self.recorder = Recorder(place, self._recording, self._key_scope, settings.timeout)
        self.transport = transport
        self._closed = False
        self._closed_at_exit = False
        self._breaker: CircuitBreaker | None = None
        self._client: GatewayClient | None = None
        self._async_client: AsyncGatewayClient | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls may begin."""
        return not self._closed

    def client(self) -> GatewayClient:
        """The synchronous client, made when first asked for."""
        client = self._client
        if client is None:
            from toolgate._http.client import GatewayClient

            with _making:
                client = self._client = self._client or GatewayClient(
                    self.settings, transport=self.transport, breaker=self._shared_breaker()
                )
        return client

    def async_client(self) -> AsyncGatewayClient:
        """The asynchronous client, made when first asked for."""
        client = self._async_client
        if client is None:
            from toolgate._http.client import AsyncGatewayClient

            with _making:
                client = self._async_client = self._async_client or AsyncGatewayClient(
                    self.settings, transport=self.transport, breaker=self._shared_breaker()
                )
        return client

    def _shared_breaker(self) -> CircuitBreaker:
        from toolgate._http.breaker import CircuitBreaker

        # A gateway in this process may have a clock of its own.
        clock = getattr(self.transport, "clock", time.monotonic)
        breaker = self._breaker = self._breaker or CircuitBreaker(self.settings.url, clock)
        return breaker

    def ensure_open(self) -> Runtime:
        """This runtime, for a call that begins.

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
        """Deliver what waits, within the settings' timeout, and close; calls under way still finish."""
        if not self._closed:
            self._closed = True
            if self.recorder.used:
                self.recorder.flush(self.settings.timeout)
                self.recorder.close(self.settings.timeout)
        if self._client is not None:
            self._client.close()
        if (end := self._local_end()) is not None:
            end()

    def close_at_exit(self) -> None:
        """Close because the interpreter shuts down, before any exit handler runs."""
        self._closed_at_exit = not self._closed
        self.close()

    async def aclose(self) -> None:
        """As `close`, and close the running loop's connections too."""
        if not self._closed:
            self._closed = True
            if self.recorder.used:
                await self.recorder.aflush(self.settings.timeout)
                await asyncio.to_thread(self.recorder.close, self.settings.timeout)
        if self._client is not None:
            self._client.close()
        if self._async_client is not None:
            await self._async_client.aclose()
        if (end := self._local_end()) is not None:
            # Not on the loop: a gateway in this process ends in order, which takes a moment.
            await asyncio.to_thread(end)

    def _local_end(self) -> Callable[[], None] | None:
        # Without the name of its class: nothing heavy is loaded to find out that there is none.
        end: Callable[[], None] | None = getattr(self.transport, "guard_closed", None)
        return end

    def _recording(self, place: Place) -> Sender:
        from toolgate._outbox.delivery import BatchSender
        from toolgate._outbox.sender import make_sender

        return make_sender(self.settings, place, lambda: BatchSender(self.settings, self.transport))

    def _key_scope(self) -> tuple[str, str] | None:
        sync, other = self._client, self._async_client
        return (sync.key_scope if sync else None) or (other.key_scope if other else None)


# Held for the making of an object only, never while a request is under way.
_making = threading.Lock()
