"""Receiver of webhooks on this machine."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from toolgate_cli.webhook_listener import Delivery, Receiver


@dataclass(slots=True)
class WebhookReceiver:
    """HTTP server that stores the deliveries of webhooks.

    Args:
        host: address to listen on.
        port: port to listen on; 0 for a free port.
        url: URL under which the gateway reaches the server; empty for the address of the server.
    """

    host: str
    port: int
    url: str = ""
    _deliveries: list[Delivery] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _server: Receiver | None = None

    def start(self) -> Self:
        """Start the server in a thread.

        Raises:
            OSError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()

        def store(delivery: Delivery) -> bool:
            loop.call_soon_threadsafe(self._store, delivery)
            return True

        self._server = Receiver(self.host, self.port, store)
        self.url = self.url or self._server.url
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _store(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._arrived.set()

    async def wait_for(self, matches: Callable[[Delivery], bool], seconds: float) -> Delivery | None:
        """Return the first delivery that matches; None if there is none within the time."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._arrived.clear()
                    found = next((one for one in self._deliveries if matches(one)), None)
                    if found is not None:
                        return found
                    await self._arrived.wait()
        except TimeoutError:
            return None


def event_of(delivery: Delivery) -> dict[str, Any]:
    """Return the JSON object that a webhook delivered; an empty object if the body is not one."""
    try:
        content = json.loads(delivery.body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
