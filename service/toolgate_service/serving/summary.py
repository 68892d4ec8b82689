"""Start-up summary: where a gateway is reached, where its data is, and what new organizations get."""

import socket
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from toolgate_service.configuration.masking import masked_url
from toolgate_service.secret_file import secret_path
from toolgate_service.settings import Settings
from toolgate_service.storage.database import is_embedded
from toolgate_service.storage.sqlite import sqlite_path

_WIDTH = 9


def startup_summary(listening: socket.socket, settings: Settings, metrics: Sequence[str] = ()) -> str:
    """Return the lines that ``toolgate serve`` prints once requests are answered.

    They contain no password.

    Args:
        listening: the socket that is served.
        settings: the gateway's settings.
        metrics: the addresses of the metrics, one per worker.
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
        yield "anyone who reaches this address can register; TOOLGATE_REGISTRATION=invite prevents that"
    if settings.provider_webhook_secret is not None and settings.default_plan == "enterprise":
        yield (
            "a payment provider is configured, and new organizations get the unlimited plan; "
            "TOOLGATE_DEFAULT_PLAN=free changes that"
        )


def _local_host(host: str) -> str:
    """Return the name by which a browser on this machine reaches an address."""
    if ip_address(host).is_unspecified:
        return "localhost"
    return _bracketed(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
