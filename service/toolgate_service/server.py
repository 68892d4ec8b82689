"""Running the gateway: a bound socket, a start-up line, uvicorn."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from typing import cast

import uvicorn

from toolgate_service.app import build
from toolgate_service.at_once import taken_at_once
from toolgate_service.errors import StartError, StorageError
from toolgate_service.gateway import Gateway
from toolgate_service.settings import Settings, load_settings
from toolgate_service.storage.database import open_database
from toolgate_service.web.at_once import QuickConnection
from toolgate_service.web.connections import Connection, Limits, look_after, room_for
from toolgate_service.web.headers import AnswerHeaders

#: seconds that requests under way, long polls above all, are given when the gateway stops
GRACE = 5


def serve(host: str, port: int, overrides: Mapping[str, str], announce: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        overrides: settings that go before the environment's, for instance ``default_plan``.
        announce: called with the start-up line once requests are answered.

    Raises:
        StartError: a setting is wrong, the port is taken, or the database cannot be used.
    """
    settings = load_settings(overrides)
    listening = _listen(host, port)
    try:
        # The database first: one that cannot be used leaves no secret behind.
        asyncio.run(_prepare(settings))
        gateway = Gateway(settings)
    except StorageError as error:
        listening.close()
        raise StartError(str(error)) from error
    limits = Limits(
        settings.request_timeout_seconds, room_for(settings.max_connections), AnswerHeaders.of(settings)
    )
    config = uvicorn.Config(
        build(gateway),
        http=cast("type[asyncio.Protocol]", _connections(gateway, limits)),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        # uvicorn believes X-Forwarded-For from the loopback address, and any local process could forge it.
        proxy_headers=False,
        timeout_keep_alive=settings.request_timeout_seconds,
        timeout_graceful_shutdown=GRACE,
    )
    line = _start_up_line(listening, settings)
    _log_to_stderr()
    _Server(config, gateway, lambda: announce(line)).run(sockets=[listening])


def _connections(gateway: Gateway, limits: Limits) -> Callable[..., Connection]:
    quick = taken_at_once(gateway)
    return partial(QuickConnection, quick, limits) if quick else partial(Connection, limits)


class _Server(uvicorn.Server):
    """uvicorn, with a word once it serves, and one to those who wait for a decision when it stops."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, serving: Callable[[], None]) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._serving = serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin; from here on signals are heard."""
        await super().startup(sockets)
        if self.started:
            self._serving()

    async def on_tick(self, counter: int) -> bool:
        """Do what uvicorn does ten times a second; look after the connections once."""
        if counter % 10 == 0:
            look_after(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; long polls are answered at once."""
        self._gateway.hub.close()
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --host or --port"
        ) from error
    return listening


def _log_to_stderr() -> None:
    # What the gateway does by itself, above all what retention removed, is told where the operator looks.
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("toolgate.gateway")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


async def _prepare(settings: Settings) -> None:
    # Before anything is announced: uvicorn would report a failed start with a traceback.
    database = open_database(settings.database_url)
    try:
        await database.start()
    finally:
        await database.close()


def _start_up_line(listening: socket.socket, settings: Settings) -> str:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    line = (
        f"Toolgate gateway on http://{shown}:{port} · new organizations get the {settings.default_plan} plan"
    )
    if settings.default_plan != "enterprise":
        line += " (--plan enterprise lifts its limits)"
    if settings.registration == "open" and not ip_address(host).is_loopback:
        line += " · anybody who reaches this address may register (TOOLGATE_REGISTRATION=invite ends that)"
    return line
