"""One process that serves a listening socket until it is told to end."""

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import uvicorn

from toolgate_service.app import build
from toolgate_service.at_once import taken_at_once
from toolgate_service.gateway import Gateway
from toolgate_service.serving.server import GRACE, GatewayServer
from toolgate_service.settings import Settings
from toolgate_service.web.at_once import QuickConnection
from toolgate_service.web.connections import Connection, Limits, room_for
from toolgate_service.web.headers import AnswerHeaders

if TYPE_CHECKING:
    from toolgate_service.metrics.listener import MetricsListener


def exposed(settings: Settings) -> "MetricsListener | None":
    """Return where metrics are served, if they are.

    Raises:
        StartError: nobody can listen there.
    """
    if settings.metrics_address is None:
        return None
    from toolgate_service.metrics.listener import MetricsListener

    return MetricsListener(settings.metrics_address)


def server_of(
    gateway: Gateway, serving: Callable[[], None], metrics: "MetricsListener | None" = None
) -> GatewayServer:
    """Return what serves a gateway.

    Args:
        gateway: not yet started.
        serving: called once requests are answered.
        metrics: where its metrics are served.
    """
    settings = gateway.settings
    limits = Limits(
        settings.request_timeout_seconds, room_for(settings.max_connections), AnswerHeaders.of(settings)
    )
    quick = dict(taken_at_once(gateway))
    made = partial(QuickConnection, quick, limits) if quick else partial(Connection, limits)
    config = uvicorn.Config(
        build(gateway),
        http=cast("type", made),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        # uvicorn believes X-Forwarded-For from the loopback address, and any local process could forge it.
        proxy_headers=False,
        timeout_keep_alive=settings.request_timeout_seconds,
        timeout_graceful_shutdown=GRACE,
    )
    return GatewayServer(config, gateway, quick, settings.drain_seconds, serving, metrics)


def log_to_stderr() -> None:
    """Tell what the gateway does by itself, above all what retention removed, where the operator looks."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("toolgate.gateway")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def run(
    gateway: Gateway,
    listening: socket.socket,
    announce: Callable[[], None],
    metrics: "MetricsListener | None" = None,
) -> None:
    """Serve until a signal.

    Args:
        gateway: not yet started.
        listening: closed at the end.
        announce: called once requests are answered.
        metrics: where its metrics are served.
    """
    log_to_stderr()
    server_of(gateway, announce, metrics).run(sockets=[listening])
