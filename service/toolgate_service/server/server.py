"""The gateway's uvicorn server: it starts the gateway, drains on SIGTERM, and stops the gateway.

While the gateway drains, for `TOOLGATE_DRAIN_SECONDS`, it still serves requests, but it reports that it is not ready,
ends long polls, and adds `Connection: close` to every response. Load balancers and clients therefore switch to other
gateways. Then uvicorn closes the port, finishes the requests in progress, and closes the connections.
"""

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import parent_process
from types import FrameType
from typing import TYPE_CHECKING, cast

import uvicorn

from toolgate_service.app import build
from toolgate_service.core.settings import Settings
from toolgate_service.gateway import Gateway
from toolgate_service.http.responses import ResponseHeaders
from toolgate_service.server.protocol import MAX_REFUSED, GatewayProtocol, Limits
from toolgate_service.server.tls import Certificates

if TYPE_CHECKING:
    from toolgate_service.server.metrics import MetricsServer

logger = logging.getLogger("toolgate.gateway")

#: maximum time in seconds for requests in progress to finish when the gateway stops
GRACE = 5
#: number of file descriptors that the gateway needs in addition to those of its client connections
OWN_FILES = 100


def create_server(
    settings: Settings,
    certificates: Certificates | None,
    metrics: "MetricsServer | None",
    on_started: Callable[[], None],
) -> "GatewayServer":
    """Create a gateway and return the server for it.

    Args:
        settings: Settings of the gateway.
        certificates: TLS certificate; None to serve HTTP without TLS.
        metrics: Metrics server; None if metrics are disabled.
        on_started: Function that is called once the gateway accepts requests.

    Raises:
        StorageError: The database's URL or the secret cannot be used.
    """
    gateway = Gateway(settings)
    app = build(gateway)
    if settings.traces:
        from toolgate_service.api.tracing import TracingMiddleware
        from toolgate_service.core.telemetry import begin_traces

        # Set up the tracer provider only here, in a process that serves requests, because it is global to the process.
        app = TracingMiddleware(app, begin_traces())
    limits = Limits(
        settings.request_timeout_seconds,
        raise_file_limit(settings.max_connections),
        ResponseHeaders.of(settings),
    )
    config = uvicorn.Config(
        app,
        http=cast("type", partial(GatewayProtocol, limits)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        # Turn this off, because uvicorn would trust X-Forwarded-For from the loopback address, which any local process
        # could forge.
        proxy_headers=False,
        timeout_keep_alive=settings.request_timeout_seconds,
        timeout_graceful_shutdown=GRACE,
    )
    return GatewayServer(config, gateway, certificates, metrics, on_started)


class GatewayServer(uvicorn.Server):
    """Server of one gateway in this process, which may be the worker process of a supervisor."""

    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        certificates: Certificates | None,
        metrics: "MetricsServer | None",
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._certificates = certificates
        self._metrics = metrics
        self._on_started = on_started
        self._supervisor = parent_process()
        #: monotonic time at which draining ends; None before SIGTERM
        self._drain_ends: float | None = None
        self._is_draining = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the gateway, then accept connections.

        Raises:
            StorageError: The gateway cannot start.
        """
        # Start the gateway here and not in ASGI's lifespan, because uvicorn would log an error of the lifespan with a
        # traceback.
        await self._gateway.start()
        if self._certificates is not None:
            self.config.ssl = self._certificates.context
        await super().startup(sockets)
        if not self.started:
            return
        if self._metrics is not None and self._gateway.metrics is not None:
            self._gateway.metrics.connections = self.server_state.connections
            self._metrics.start(self._gateway, self._gateway.metrics)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first SIGTERM if a drain time is set; otherwise stop at once.

        A worker that drains ignores a further SIGTERM.
        """
        drain_seconds = self._gateway.settings.drain_seconds
        if sig != signal.SIGTERM or self.should_exit or not drain_seconds:
            super().handle_exit(sig, frame)
        elif self._drain_ends is None:
            self._captured_signals.append(sig)
            self._drain_ends = time.monotonic() + drain_seconds
        elif self._supervisor is None:
            super().handle_exit(sig, frame)
        # A worker ignores a further SIGTERM, because it may get two for one stop: a service manager signals all
        # processes, and the supervisor then signals its workers.

    async def on_tick(self, counter: int) -> bool:
        """Run the periodic tasks of the server; uvicorn calls this method ten times a second.

        Once a second, enforce the time-outs of all connections, reload changed certificates, and stop if the supervisor
        process has ended. While the gateway drains, stop when the drain time is over.
        """
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                cast("GatewayProtocol", connection).enforce_timeouts(now)
            if self._certificates is not None:
                self._certificates.reload_if_changed()
            if self._supervisor is not None and not self._supervisor.is_alive():
                self.should_exit = True
        if self._drain_ends is not None:
            self._begin_draining()
            if time.monotonic() >= self._drain_ends:
                self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, finish requests in progress, and stop the gateway."""
        self._begin_draining()
        if self._metrics is not None:
            await self._metrics.stop()
        try:
            await super().shutdown(sockets)
            if not self.force_exit:
                await self._gateway.stop()
        finally:
            if self._gateway.settings.traces:
                from toolgate_service.core.telemetry import end_traces

                await asyncio.to_thread(end_traces)

    def _begin_draining(self) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        self._gateway.begin_shutdown()
        # Add the header to `default_headers`, which uvicorn sends with each response, and to `encoded_headers`, from
        # which uvicorn rebuilds `default_headers` once a second.
        close = (b"connection", b"close")
        self.config.encoded_headers = [*self.config.encoded_headers, close]
        self.server_state.default_headers = [*self.server_state.default_headers, close]


def raise_file_limit(connections: int) -> int:
    """Raise the process's limit of open files as far as needed and allowed.

    Returns:
        The number of connections for which the limit suffices: at most `connections`.
    """
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + MAX_REFUSED + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            connections = max(1, soft - MAX_REFUSED - OWN_FILES)
            logger.error(
                "The operating system's limit of open files allows only %d connections; raise it with `ulimit -n`",
                connections,
            )
    return connections
