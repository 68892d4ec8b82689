"""The gateway's routes, read from the application itself."""

from typing import Any

from support.gateway import SECRET
from support.provider import SECRET as PROVIDER_SECRET
from toolgate_service.api.app import PLAIN_ENDPOINTS, _fastapi_app
from toolgate_service.core.settings import Settings
from toolgate_service.gateway import Gateway

try:
    from fastapi.routing import iter_route_contexts
except ImportError:
    # In older versions an application's routes already include those of its routers.
    iter_route_contexts = iter

#: every setting that brings routes with it
ALL_ON = {"stripe_webhook_secret": PROVIDER_SECRET}


def routes() -> list[str]:
    """Return every route, for instance ``GET /api/agents/{agent_id}``."""
    given: dict[str, Any] = {"database_url": "sqlite:////nowhere/never-opened.db", "secret": SECRET, **ALL_ON}
    fastapi_app = _fastapi_app(Gateway(Settings(**given)))
    plain = [f"POST {path}" for path in PLAIN_ENDPOINTS]
    others = [
        f"{method} {route.path}"
        for route in iter_route_contexts(fastapi_app.routes)
        for method in sorted(route.methods or {"GET"})
    ]
    return plain + others
