"""The gateway's routes, read from the application itself."""

from typing import Any

from starlette.types import ASGIApp

from support.gateway import SECRET
from support.provider import SECRET as PROVIDER_SECRET
from toolgate_service.app import create_app
from toolgate_service.settings import Settings

try:
    from fastapi.routing import iter_route_contexts
except ImportError:
    # In older versions an application's routes already include those of its routers.
    iter_route_contexts = iter

#: every setting that brings routes with it
ALL_ON = {"provider_webhook_secret": PROVIDER_SECRET}


def routes() -> list[str]:
    """Return every route, for instance ``GET /api/agents/{agent_id}``."""
    given: dict[str, Any] = {"database_url": "sqlite:////nowhere/never-opened.db", "secret": SECRET, **ALL_ON}
    roads = _roads(create_app(Settings(**given)))
    raw = [f"POST {path}" for path in roads._raw]
    others = [
        f"{method} {route.path}"
        for route in iter_route_contexts(roads._management.routes)
        for method in sorted(route.methods or {"GET"})
    ]
    return raw + others


def _roads(app: ASGIApp) -> Any:
    """Return what is inside all that is wrapped around the roads."""
    inner: Any = app
    while not hasattr(inner, "_raw"):
        inner = inner._inner
    return inner
