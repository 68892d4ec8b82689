"""A worker's side of the line to its parent."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from toolgate_service.serving.server import GatewayServer

#: what a worker says once it serves
SERVES = b"s"
#: what it is told: to end after the pause, or at once
PAUSE = b"p"
NOW = b"n"


class ToldServer(GatewayServer):
    """Ends when the parent says so or is gone, and hears no signal.

    Attributes:
        line: to the parent; set before it runs.
    """

    line: socket.socket

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals as they are."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin; from here on the parent is heard."""
        self.line.setblocking(False)
        asyncio.get_running_loop().add_reader(self.line, self._hear)
        await super().startup(sockets)
        if self.started:
            # The parent may be gone already, which is heard next.
            with suppress(BrokenPipeError):
                self.line.send(SERVES)

    def _hear(self) -> None:
        try:
            said = self.line.recv(16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            # The parent is gone. Without its end of the line this would be said for ever.
            asyncio.get_running_loop().remove_reader(self.line)
        self.end(at_once=said != PAUSE)
