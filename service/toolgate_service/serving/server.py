"""uvicorn, with an end that loses no request.

On SIGTERM the gateway is not ready any more, but goes on taking and answering everything for a while, each answer with
`Connection: close`, so that balancers and clients go elsewhere of their own accord. Only then does it stop accepting,
answer what is under way or has begun to arrive, and end. Nothing of it is asked for on the way of a request: the headers
of all answers change, and who answers at once is taken away.
"""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, MutableMapping
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from toolgate_service.gateway import Gateway
from toolgate_service.serving.listening import all_taken, hear_again, turn_away
from toolgate_service.serving.tls import Certificates
from toolgate_service.web.at_once import Immediate
from toolgate_service.web.connections import CLOSE, Connection, look_after

if TYPE_CHECKING:
    from toolgate_service.metrics.listener import MetricsListener

#: seconds that requests under way are given when the gateway stops
GRACE = 5
#: seconds in which a connection that was begun before nobody was let in any more is established
ROUND_TRIP = 0.2
#: seconds in which a connection that was taken last has been encrypted
HANDSHAKE = 0.5
#: seconds between two looks for connections on which nothing is under way any more
LOOK_AGAIN = 0.02


class GatewayServer(uvicorn.Server):
    """One process that serves.

    Args:
        config: uvicorn's.
        gateway: what is served.
        quick: who answers at once, by path; emptied when the end begins.
        pause: seconds between SIGTERM and the last connection that is taken.
        serving: called once requests are answered.
        metrics: where its metrics are served, to the last.
        certificates: what connections are encrypted with, if they are.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        quick: MutableMapping[bytes, Immediate],
        pause: float,
        serving: Callable[[], None],
        metrics: "MetricsListener | None" = None,
        certificates: Certificates | None = None,
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._quick = quick
        self._pause = pause
        self._serving = serving
        self._metrics = metrics
        self._certificates = certificates
        #: when the pause is over; None before it begins
        self._pause_ends: float | None = None
        self._leaving = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin; from here on signals are heard.

        Raises:
            StorageError: the gateway cannot begin.
        """
        # Not by the application's lifespan, whose failure uvicorn tells in a traceback.
        await self._gateway.start()
        if self._certificates is not None:
            self.config.ssl = self._certificates.context
        await super().startup(sockets)
        if self.started and self._metrics is not None and self._gateway.figures is not None:
            self._gateway.figures.connections = self.server_state.connections
            await self._metrics.start(self._gateway, self._gateway.figures)
        if self.started:
            self._serving()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End: on the first SIGTERM after the pause, on any other signal now."""
        if sig == signal.SIGTERM and self._pause_ends is None:
            self._captured_signals.append(sig)
            self.end(at_once=False)
        else:
            super().handle_exit(sig, frame)

    def end(self, *, at_once: bool) -> None:
        """Begin to end: the next tick says so to everybody. May be called at any moment, by a signal too.

        Args:
            at_once: whether without the pause.
        """
        if at_once or not self._pause:
            self.should_exit = True
        else:
            self._pause_ends = time.monotonic() + self._pause

    async def on_tick(self, counter: int) -> bool:
        """Do what uvicorn does ten times a second; look after the connections once."""
        if counter % 10 == 0:
            look_after(self.server_state.connections, asyncio.get_running_loop().time())
            if self._certificates is not None:
                self._certificates.look()
        if self._pause_ends is not None:
            self._leave()
            if time.monotonic() >= self._pause_ends:
                self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: take what the kernel has taken, answer what is under way, close."""
        self._leave()
        for listening in sockets or ():
            turn_away(listening)
            if self._pause_ends is not None:
                await asyncio.sleep(ROUND_TRIP)
            await all_taken(listening)
            if self._certificates is not None and self._pause_ends is not None:
                # Who still shakes hands is no connection yet that anybody would wait for.
                await asyncio.sleep(HANDSHAKE)
        closing = asyncio.create_task(self._close_idle())
        if self._metrics is not None:
            await self._metrics.stop()
        try:
            await super().shutdown(sockets)
            if not self.force_exit:
                await self._gateway.stop()
        finally:
            closing.cancel()
            if self._gateway.settings.traces:
                from toolgate_service.tracing.provider import end_traces

                await asyncio.to_thread(end_traces)

    def _leave(self) -> None:
        """Tell everybody to go elsewhere, once."""
        if self._leaving:
            return
        self._leaving = True
        self._gateway.leave()
        self._quick.clear()
        # uvicorn makes the headers of all answers anew every second, of these.
        self.config.encoded_headers = [*self.config.encoded_headers, CLOSE]
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.answer_last()

    async def _close_idle(self) -> None:
        # uvicorn asks each connection once; what was not at rest then may be now.
        heard = set[object]()
        while True:
            await asyncio.sleep(LOOK_AGAIN)
            for connection in list(self.server_state.connections):
                if connection not in heard:
                    heard.add(connection)
                    hear_again(connection.transport.get_extra_info("socket"))
                connection.shutdown()
