"""Running the gateway: a bound socket, a usable database, the start-up summary."""

import asyncio
import os
from collections.abc import Callable, Mapping

from toolgate_service.errors import StartError, StorageError
from toolgate_service.reporting.setup import report_to_stderr
from toolgate_service.sealed import verified_vault
from toolgate_service.serving.listening import listen
from toolgate_service.serving.process import exposed, run
from toolgate_service.serving.summary import startup_summary
from toolgate_service.serving.tls import Certificates
from toolgate_service.settings import Settings, load_settings
from toolgate_service.storage.database import open_database

__all__ = ["StartError", "serve"]


def serve(host: str, port: int, overrides: Mapping[str, str], announce: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        overrides: settings that go before the environment's, for instance ``default_plan``.
        announce: called with the start-up summary, several lines, once requests are answered.

    Raises:
        StartError: a setting is wrong, the port is taken, or the database cannot be used.
    """
    settings = load_settings(overrides)
    if settings.workers > 1 and not hasattr(os, "fork"):
        raise StartError(
            "TOOLGATE_WORKERS: this system cannot fork; serve with 1, or several gateways on PostgreSQL"
        )
    certificates = _certificates(settings)
    report_to_stderr(settings)
    listening = listen(host, port)
    try:
        metrics = exposed(settings)
        # The database first: one that cannot be used leaves no secret behind. Both once, before there are several of us.
        asyncio.run(_prepare(settings))
        settings.secret_bytes()
        summary = startup_summary(listening, settings, [one.url for one in metrics])
        run(settings, listening, lambda: announce(summary), metrics, certificates)
    except StorageError as error:
        raise StartError(str(error)) from error
    finally:
        listening.close()


def _certificates(settings: Settings) -> Certificates | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_cert, settings.tls_key)


async def _prepare(settings: Settings) -> None:
    # Before anything is announced: uvicorn would report a failed start with a traceback.
    database = open_database(settings.database_url)
    try:
        await database.start(migrate=settings.migrate == "auto")
        await verified_vault(database, settings)
    finally:
        await database.close()
