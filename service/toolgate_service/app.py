"""Creation of the gateway's ASGI application, which consists of the API and the console."""

from starlette.types import ASGIApp

from toolgate_service.api import app as api
from toolgate_service.console.mount import LazyConsole
from toolgate_service.core.settings import Settings
from toolgate_service.gateway import Gateway


def create_app(settings: Settings | None = None) -> ASGIApp:
    """Return the application of a new gateway.

    Args:
        settings: Read from the environment if omitted.

    Raises:
        StorageError: The database URL or the secret is invalid.
    """
    return build(Gateway(settings or Settings()))


def build(gateway: Gateway) -> ASGIApp:
    """Return the application for a gateway. It includes the console unless the settings disable it."""
    return api.build(gateway, LazyConsole(gateway) if gateway.settings.console else None)
