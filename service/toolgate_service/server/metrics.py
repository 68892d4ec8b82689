"""HTTP server for `GET /metrics`. It listens on a separate address, which clients of the API need not reach."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from prometheus_client import disable_created_metrics

from toolgate_service.api.metrics import PATH, MetricsApp
from toolgate_service.core.addresses import ListenAddress
from toolgate_service.core.errors import StartError
from toolgate_service.core.metrics import Metrics
from toolgate_service.gateway import Gateway

#: maximum number of concurrent requests, and of connections; a Prometheus server needs only one
MAX_CONNECTIONS = 16
#: seconds after which an idle connection is closed; longer than the usual interval between two scrapes
KEEP_ALIVE = 90


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers, because the gateway's server in the same process handles the signals."""
        yield


class MetricsServer:
    """Metrics server of one gateway process.

    The socket listens as soon as the object is created, so that an unusable address is reported before the gateway
    starts. Requests are served between `start` and `stop`, in the gateway's event loop.

    Raises:
        StartError: The address cannot be used.
    """

    def __init__(self, address: ListenAddress) -> None:
        self._socket = _listen(address)
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """URL of the metrics. If the configured port is 0, the URL contains the port that the system chose."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    def start(self, gateway: Gateway, metrics: Metrics) -> None:
        """Start serving requests."""
        # Omit the `_created` series, which prometheus_client adds to every counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the package has no annotation here
        config = uvicorn.Config(
            MetricsApp(gateway, metrics),
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._task = asyncio.get_running_loop().create_task(self._server.serve([self._socket]))

    def close(self) -> None:
        """Close the socket in this process. A worker process that has received the server keeps listening."""
        self._socket.close()

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task


def _listen(address: ListenAddress) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(MAX_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise StartError(
            f"cannot serve metrics on {address.host}:{address.port}: {error.strerror or error}; set "
            "TOOLGATE_METRICS_ADDRESS to another address"
        ) from error
    return listening
