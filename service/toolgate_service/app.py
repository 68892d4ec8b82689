"""The gateway as an ASGI application: the edge, the raw road for check and log, FastAPI for everything else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib.metadata import version

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service import exact_json
from toolgate_service.accounts.reset_routes import router as resets
from toolgate_service.accounts.routes import router as accounts
from toolgate_service.agents.key_routes import router as agent_keys
from toolgate_service.agents.routes import router as agents
from toolgate_service.approvals.denial_routes import router as denial_blocks
from toolgate_service.approvals.routes import router as approvals
from toolgate_service.audit.routes import router as audit
from toolgate_service.billing.provider_routes import provider_routes
from toolgate_service.billing.routes import router as billing
from toolgate_service.checks.endpoint import check_endpoint
from toolgate_service.console.door import REDIRECT_TO_CONSOLE, Door, is_browser_at_root, leads_there
from toolgate_service.gateway import Gateway
from toolgate_service.grants.routes import router as grants
from toolgate_service.hotpath.http import endpoint
from toolgate_service.logs.endpoint import log_endpoint
from toolgate_service.logs.many import logs_endpoint
from toolgate_service.logs.routes import router as logs
from toolgate_service.metrics.requests import Counted
from toolgate_service.openapi.document import describe
from toolgate_service.openapi.page import page
from toolgate_service.openapi.routes import router as openapi
from toolgate_service.organizations.routes import router as organizations
from toolgate_service.permissions.routes import router as permissions
from toolgate_service.permissions.routes import sdk_router as own_permissions
from toolgate_service.reporting.access import Noted
from toolgate_service.settings import Settings
from toolgate_service.slack.intake_routes import router as slack_intake
from toolgate_service.slack.routes import router as slack
from toolgate_service.team.routes import router as team
from toolgate_service.web.anew import Anew
from toolgate_service.web.edge import Edge, Rules
from toolgate_service.web.faults import tell_faults
from toolgate_service.web.health import router as health
from toolgate_service.web.replies import Reply
from toolgate_service.webhooks.routes import router as webhooks

#: everything but the raw road
ROUTERS = (
    accounts,
    resets,
    team,
    organizations,
    agents,
    agent_keys,
    permissions,
    own_permissions,
    approvals,
    denial_blocks,
    grants,
    logs,
    webhooks,
    slack,
    audit,
    billing,
    health,
    openapi,
)

#: the raw road; `toolgate_service.openapi.raw` describes it
RAW_ENDPOINTS = {"/sdk/check": check_endpoint, "/sdk/log": log_endpoint, "/sdk/logs": logs_endpoint}


def create_app(settings: Settings | None = None) -> ASGIApp:
    """Build the gateway.

    Args:
        settings: read from the environment when left out.

    Raises:
        StorageError: the database's URL or the secret cannot be used.
    """
    return build(Gateway(settings or Settings()))


def build(gateway: Gateway) -> ASGIApp:
    """Put the roads around a gateway."""
    app: ASGIApp = Edge(_Roads(gateway, _management(gateway)), Rules.of(gateway.settings))
    if gateway.figures is not None:
        app = Counted(app, gateway.figures)
    return Noted(app) if gateway.settings.access_log else app


class _Roads:
    """Sends the busiest requests down the raw road, browsers to the console, all others to FastAPI."""

    def __init__(self, gateway: Gateway, management: FastAPI) -> None:
        self._management = management
        self._raw = {path: endpoint(make(gateway)) for path, make in RAW_ENDPOINTS.items()}
        self._console = Door(gateway) if gateway.settings.console else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        road = self._raw.get(scope["path"]) if scope["type"] == "http" else None
        if road is None and self._console is not None and leads_there(scope):
            await self._console(scope, receive, send)
        elif road is None and self._console is not None and is_browser_at_root(scope):
            await REDIRECT_TO_CONSOLE(scope, receive, send)
        elif road is None:
            await self._management(scope, receive, send)
        elif scope["method"] == "POST":
            await road(scope, receive, send)
        else:
            await Reply({"detail": "Method Not Allowed"}, 405, {"Allow": "POST"})(scope, receive, send)


def _management(gateway: Gateway) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    app = FastAPI(
        title="Toolgate",
        version=version("toolgate"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        # Its own telemetry tells queries and the words of exceptions, and there may be a provider: an embedded gateway is
        # in somebody else's process. Versions that have none take the word for one of the application's own.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.gateway = gateway
    tell_faults(app)
    app.add_middleware(Anew)
    # Written once: each of these takes tens of milliseconds, and needs no credential.
    app.state.document = document = cache(partial(describe, ROUTERS))
    app.state.document_json = cache(lambda: exact_json.dumps(document()).encode())
    app.state.document_page = cache(lambda: page(document()).encode())
    for router in ROUTERS:
        app.include_router(router)
    # Beside the document, as the provider's events are: their shapes are not ours.
    app.include_router(slack_intake)
    if gateway.provider_signature is not None:
        app.include_router(provider_routes(gateway.provider_signature))
    return app
