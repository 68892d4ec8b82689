"""The gateway's routes, read from the application itself."""

from typing import Any

from starlette.types import ASGIApp

from support.gateway import SECRET
from support.provider import SECRET as PROVIDER_SECRET
from toolgate_service.app import create_app
from toolgate_service.core.settings import Settings

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
    dispatcher = _dispatcher(create_app(Settings(**given)))
    raw = [f"POST {path}" for path in dispatcher.raw]
    others = [
        f"{method} {route.path}"
        for route in iter_route_contexts(dispatcher.fastapi_app.routes)
        for method in sorted(route.methods or {"GET"})
    ]
    return raw + others


def _dispatcher(app: ASGIApp) -> Any:
    """Return the application inside all middleware."""
    inner: Any = app
    while not hasattr(inner, "raw"):
        inner = inner._inner
    return inner
