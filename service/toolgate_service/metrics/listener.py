"""Where the figures are served: an address of their own, off the one that agents and people reach (decisions §3)."""

import asyncio
import contextlib
import socket
from functools import partial

import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from toolgate_service.errors import StartError
from toolgate_service.gateway import Gateway
from toolgate_service.metrics.address import Address
from toolgate_service.metrics.families import MEDIA_TYPE, Exposition
from toolgate_service.metrics.figures import Figures
from toolgate_service.web.connections import Connection, Limits, look_after
from toolgate_service.web.headers import AnswerHeaders
from toolgate_service.web.replies import Reply

PATH = "/metrics"
#: whoever collects figures needs one
CONNECTIONS = 16
#: seconds that a request may take to arrive, and a connection may be idle: longer than between two looks
PATIENCE = 90.0


class MetricsListener:
    """Answers `GET /metrics` in the gateway's loop, from the moment that it is made; until `start` everybody waits.

    Args:
        address: where.

    Raises:
        StartError: nobody can listen there.
    """

    def __init__(self, address: Address) -> None:
        self._socket = _listen(address)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it answers; the port is the one that was taken."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    async def start(self, gateway: Gateway, figures: Figures) -> None:
        """Begin to answer.

        Args:
            gateway: whose figures.
            figures: what it has counted.
        """
        self._exposition = Exposition(gateway, figures)
        config = uvicorn.Config(
            self._serve, interface="asgi3", ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            server_header=False,
        )  # fmt: skip
        config.load()
        limits = Limits(PATIENCE, CONNECTIONS, AnswerHeaders(https=False))
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            partial(Connection, limits, config, self._state, {}), sock=self._socket
        )
        self._looking = loop.create_task(self._look_after())

    async def stop(self) -> None:
        """Hang up."""
        if self._server is None or self._looking is None:
            return
        self._server.close()
        self._looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._looking
        for connection in list(self._state.connections):
            connection.shutdown()

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(1)
            look_after(self._state.connections, asyncio.get_running_loop().time())

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response
        if scope["path"] != PATH:
            answer = Reply({"detail": "Not Found"}, 404)
        elif scope["method"] not in {"GET", "HEAD"}:
            answer = Reply({"detail": "Method Not Allowed"}, 405, {"Allow": "GET, HEAD"})
        else:
            answer = Response(await self._exposition.text(), media_type=MEDIA_TYPE)
        await answer(scope, receive, send)


def _listen(address: Address) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(CONNECTIONS)
    except OSError as error:
        listening.close()
        raise StartError(
            f"cannot serve metrics on {address.host}:{address.port}: {error.strerror or error}; choose another "
            "TOOLGATE_METRICS_ADDRESS"
        ) from error
    return listening
