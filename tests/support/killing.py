"""Killing a gateway at a moment that only its clients know."""

import threading

from support.gateway import LiveGateway


class Executioner:
    """Kills the gateway from within the client that hears the fatal acknowledgement."""

    def __init__(self, gateway: LiveGateway, after: int) -> None:
        assert gateway.process is not None
        self._process = gateway.process
        self._left = after
        self._lock = threading.Lock()

    def heard(self) -> None:
        """Count one acknowledgement; the last one kills."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._process.kill()
