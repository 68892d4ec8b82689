"""One process that serves a listening socket until it is told to end."""

import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import uvicorn

from toolgate_service.app import build
from toolgate_service.at_once import taken_at_once
from toolgate_service.gateway import Gateway
from toolgate_service.serving.server import GRACE, GatewayServer
from toolgate_service.serving.tls import Certificates
from toolgate_service.serving.told import ToldServer
from toolgate_service.serving.workers import Workers
from toolgate_service.settings import Settings
from toolgate_service.web.at_once import QuickConnection
from toolgate_service.web.connections import Connection, Limits, room_for
from toolgate_service.web.headers import AnswerHeaders

if TYPE_CHECKING:
    from toolgate_service.metrics.listener import MetricsListener

Kind = TypeVar("Kind", bound=GatewayServer)

#: seconds that a worker has for its end beside the pause and the grace of what is under way: it closes its database
TO_CLOSE = 10


def exposed(settings: Settings) -> "Sequence[MetricsListener]":
    """Return where metrics are served, if they are: each worker counts for itself, on a port of its own.

    Raises:
        StartError: nobody can listen there.
    """
    address = settings.metrics_address
    if address is None:
        return ()
    from toolgate_service.metrics.listener import MetricsListener

    ports = [address.port and address.port + number for number in range(settings.workers)]
    return [MetricsListener(address._replace(port=port)) for port in ports]


def run(
    settings: Settings,
    listening: socket.socket,
    announce: Callable[[], None],
    metrics: "Sequence[MetricsListener]" = (),
    certificates: Certificates | None = None,
) -> None:
    """Serve until a signal, in this process or in several of its own.

    Args:
        settings: whose database is up to date, and whose secret exists.
        listening: closed at the end.
        announce: called once requests are answered.
        metrics: where those of each process are served, if they are.
        certificates: what connections are encrypted with, if they are.

    Raises:
        StorageError: the database's URL or the secret cannot be used.
        StartError: a worker could not begin.
    """
    each: Sequence[MetricsListener | None] = metrics or [None] * settings.workers
    if settings.workers == 1:
        _server_of(Gateway(settings), GatewayServer, announce, each[0], certificates).run(sockets=[listening])
        return

    def work(number: int, line: socket.socket) -> None:
        server = _server_of(Gateway(settings), ToldServer, lambda: None, each[number], certificates)
        server.line = line
        server.run(sockets=[listening])

    patience = settings.drain_seconds + GRACE + TO_CLOSE
    Workers(settings.workers, work, patience).run(listening, announce)


def _server_of(
    gateway: Gateway,
    kind: type[Kind],
    serving: Callable[[], None],
    metrics: "MetricsListener | None",
    certificates: Certificates | None,
) -> Kind:
    settings = gateway.settings
    limits = Limits(
        settings.request_timeout_seconds, room_for(settings.max_connections), AnswerHeaders.of(settings)
    )
    quick = dict(taken_at_once(gateway))
    made = partial(QuickConnection, quick, limits) if quick else partial(Connection, limits)
    app = build(gateway)
    if settings.traces:
        # Here, after every fork, and never in somebody else's process: a provider is the whole process's.
        from toolgate_service.tracing.provider import begin_traces
        from toolgate_service.tracing.requests import Traced

        app = Traced(app, begin_traces())
    config = uvicorn.Config(
        app,
        http=cast("type", made),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        # uvicorn believes X-Forwarded-For from the loopback address, and any local process could forge it.
        proxy_headers=False,
        timeout_keep_alive=settings.request_timeout_seconds,
        timeout_graceful_shutdown=GRACE,
    )
    return kind(config, gateway, quick, settings.drain_seconds, serving, metrics, certificates)
