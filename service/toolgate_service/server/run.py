"""`toolgate serve`: open the port, prepare the database, create the gateway's secret if it is missing, and serve."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from toolgate_service.core.crypto import secret_path
from toolgate_service.core.errors import StartError, StorageError
from toolgate_service.core.logging import configure_logging
from toolgate_service.core.plans import describe_limits
from toolgate_service.core.settings import Settings, is_embedded, load_settings
from toolgate_service.core.settings_sources import log_renamed_settings
from toolgate_service.core.text_safety import masked_url
from toolgate_service.db.sqlite import sqlite_path
from toolgate_service.secret_check import prepare_database
from toolgate_service.server.server import create_server
from toolgate_service.server.tls import load_certificates
from toolgate_service.server.workers import run_workers

if TYPE_CHECKING:
    from toolgate_service.server.metrics import MetricsServer

__all__ = ["StartError", "serve"]

logger = logging.getLogger("toolgate.gateway")

#: maximum number of connections that the operating system queues until the gateway accepts them
BACKLOG = 2048
#: width in characters of the column with the names in the start-up summary
_WIDTH = 9


def serve(host: str, port: int, overrides: Mapping[str, str], announce: Callable[[str], None]) -> None:
    """Serve until a signal stops the gateway.

    Args:
        host: Address to listen on.
        port: TCP port to listen on; 0 selects a free port.
        overrides: Settings, for instance ``default_plan``, that take precedence over environment variables.
        announce: Function that is called with the start-up summary once the gateway accepts requests.

    Raises:
        StartError: A setting or the TLS certificate is invalid, the address or the database cannot be used, or a worker
            cannot start.
        KeyboardInterrupt: The signal was SIGINT.
    """
    settings = load_settings(overrides)
    certificates = load_certificates(settings)
    configure_logging(settings)
    log_renamed_settings(settings.secrets_dir)
    listening = listen(host, port)
    try:
        metrics = _metrics_servers(settings)
        # Prepare the database once, before any worker starts, and before uvicorn, which would report an error with a
        # traceback. Create the gateway's secret only afterwards, so that no unused file with a secret remains if the
        # database is unusable.
        asyncio.run(prepare_database(settings))
        settings.secret_bytes()
        summary = startup_summary(listening, settings, [server.url for server in metrics])

        def on_started() -> None:
            _log_plan_limits(settings)
            announce(summary)

        if settings.workers > 1:
            run_workers(settings.workers, overrides, listening, metrics, on_started)
        else:
            server = create_server(settings, certificates, next(iter(metrics), None), on_started)
            server.run(sockets=[listening])
    except StorageError as error:
        raise StartError(str(error)) from error
    finally:
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        StartError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --host or another port with --port"
        ) from error
    return listening


def _metrics_servers(settings: Settings) -> "list[MetricsServer]":
    """Return one metrics server for each worker, on consecutive ports; empty if metrics are disabled.

    Raises:
        StartError: An address cannot be used.
    """
    address = settings.metrics_address
    if address is None:
        return []
    from toolgate_service.server.metrics import MetricsServer

    ports = [address.port and address.port + number for number in range(settings.workers)]
    return [MetricsServer(address._replace(port=port)) for port in ports]


def startup_summary(listening: socket.socket, settings: Settings, metrics: Sequence[str] = ()) -> str:
    """Return the lines, without passwords, that ``toolgate serve`` prints once the gateway accepts requests.

    Args:
        listening: The listening socket.
        settings: Settings of the gateway.
        metrics: URLs of the metrics servers, one for each worker.
    """
    host, port = listening.getsockname()[:2]
    scheme = "http" if settings.tls_cert is None else "https"
    rows = dict(_rows(settings, f"{scheme}://{_local_host(host)}:{port}", metrics))
    return "\n".join(
        (
            f"Toolgate gateway on {scheme}://{_bracketed(host)}:{port}",
            *(f"  {name:<{_WIDTH}} {value}" for name, value in rows.items()),
            *(f"  Warning: {warning}" for warning in _warnings(settings, host)),
            "Press Ctrl-C to stop.",
        )
    )


def _rows(settings: Settings, address: str, metrics: Sequence[str]) -> Iterator[tuple[str, str]]:
    if settings.console:
        yield "console", f"{settings.public_url or address}/console"
    else:
        yield "console", "off (TOOLGATE_CONSOLE=false)"
    if is_embedded(settings.database_url):
        yield "database", str(sqlite_path(settings.database_url))
    else:
        yield "database", masked_url(settings.database_url)
    is_set = settings.secret is not None or not is_embedded(settings.database_url)
    yield "secret", "TOOLGATE_SECRET" if is_set else str(secret_path())
    yield "plan", f"{settings.default_plan}, for new organizations (--plan, TOOLGATE_DEFAULT_PLAN)"
    if settings.workers > 1:
        yield "workers", str(settings.workers)
    if metrics:
        yield "metrics", ", ".join(metrics)


def _warnings(settings: Settings, host: str) -> Iterator[str]:
    if settings.registration == "open" and not ip_address(host).is_loopback:
        yield "anyone who can reach this address can register an organization; to prevent that, set TOOLGATE_REGISTRATION=invite"
    if settings.stripe_webhook_secret is not None and settings.default_plan == "enterprise":
        yield (
            "a payment provider is configured, and new organizations get the unlimited plan; "
            "to give them the free plan, set TOOLGATE_DEFAULT_PLAN=free"
        )


def _log_plan_limits(settings: Settings) -> None:
    """Log the limits of new organizations, and how to lift them, if the default plan is the free plan."""
    if settings.default_plan == "free":
        logger.info(
            "New organizations get the free plan (%s). To lift these limits, set TOOLGATE_DEFAULT_PLAN=enterprise, or "
            "override the plan in a file that TOOLGATE_PLANS_FILE names. Existing organizations keep their plan until "
            "you run: toolgate admin set-plan ORGANIZATION enterprise",
            describe_limits(settings.plans["free"]),
        )


def _local_host(host: str) -> str:
    """Return the host name or address for a URL under which this machine can reach the gateway."""
    if ip_address(host).is_unspecified:
        return "localhost"
    return _bracketed(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
