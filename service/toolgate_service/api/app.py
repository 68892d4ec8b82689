"""Assembly of the gateway's ASGI application: middleware, plain ASGI endpoints for checks and logs, and FastAPI."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Protocol

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service.access_requests.routes import router as access_requests
from toolgate_service.accounts.routes import reset_router as resets
from toolgate_service.accounts.routes import router as accounts
from toolgate_service.agents.routes import keys_router as agent_keys
from toolgate_service.agents.routes import router as agents
from toolgate_service.api.exception_handlers import install_exception_handlers
from toolgate_service.api.health import router as health
from toolgate_service.api.middleware import (
    AccessLogMiddleware,
    EdgeMiddleware,
    RetryMiddleware,
)
from toolgate_service.api.openapi import describe, files_router
from toolgate_service.api.openapi import router as docs
from toolgate_service.approvals.routes import denial_blocks_router as denial_blocks
from toolgate_service.approvals.routes import router as approvals
from toolgate_service.audit.routes import router as audit
from toolgate_service.authzen.routes import ENDPOINTS as AUTHZEN_ENDPOINTS
from toolgate_service.authzen.routes import base_path_router as authzen_below_path
from toolgate_service.authzen.routes import router as authzen
from toolgate_service.billing.routes import provider_routes
from toolgate_service.billing.routes import router as billing
from toolgate_service.budgets.routes import router as budgets
from toolgate_service.checks.routes import check_endpoint
from toolgate_service.core import strict_json
from toolgate_service.decisions.routes import router as decisions
from toolgate_service.freezes.routes import router as freezes
from toolgate_service.gateway import Gateway
from toolgate_service.grants.routes import router as grants
from toolgate_service.logs.routes import log_endpoint, logs_endpoint
from toolgate_service.logs.routes import router as logs
from toolgate_service.organizations.routes import router as organizations
from toolgate_service.permissions.routes import router as permissions
from toolgate_service.permissions.routes import sdk_router as own_permissions
from toolgate_service.policies.routes import router as policies
from toolgate_service.rules.routes import router as rules
from toolgate_service.scratch.routes import operator_routes
from toolgate_service.slack.routes import interactions_router as slack_intake
from toolgate_service.slack.routes import router as slack
from toolgate_service.team.routes import router as team
from toolgate_service.transparency.routes import router as transparency
from toolgate_service.webhooks.routes import router as webhooks

#: FastAPI routers whose routes the OpenAPI document describes, in the order of the document
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
    rules,
    budgets,
    policies,
    freezes,
    logs,
    decisions,
    transparency,
    authzen,
    access_requests,
    webhooks,
    slack,
    audit,
    billing,
    health,
    docs,
)

#: Plain ASGI endpoints by path. Agents wait for the responses of these endpoints, so the endpoints do not use FastAPI,
#: which reaches only a third of the throughput of plain ASGI.
PLAIN_ENDPOINTS = {
    "/sdk/check": check_endpoint,
    "/sdk/log": log_endpoint,
    "/sdk/logs": logs_endpoint,
    **AUTHZEN_ENDPOINTS,
}


def build(gateway: Gateway, console: "Mount | None" = None) -> ASGIApp:
    """Build the ASGI application that serves a gateway.

    Args:
        gateway: Gateway that the application's ASGI lifespan starts and stops.
        console: Application of the web console; None if the operator has disabled the console.
    """
    endpoints = {path: make(gateway) for path, make in PLAIN_ENDPOINTS.items()}
    app: ASGIApp = EdgeMiddleware(
        ConsoleOrFastAPI(_fastapi_app(gateway), console), gateway.settings, endpoints
    )
    if gateway.metrics is not None:
        # Import the module only if it is needed, because it requires the optional dependency `prometheus-client`.
        from toolgate_service.api.metrics import MetricsMiddleware

        app = MetricsMiddleware(app, gateway.metrics)
    return AccessLogMiddleware(app) if gateway.settings.access_log else app


class Mount(Protocol):
    """Interface of a part of the gateway, such as the console, that serves some of the requests."""

    def app_for(self, scope: Scope) -> ASGIApp | None:
        """Return the application for a request; None if the request is not for this part of the gateway."""


class ConsoleOrFastAPI:
    """ASGI application that passes each request to the console or to FastAPI."""

    def __init__(self, fastapi_app: FastAPI, console: Mount | None) -> None:
        self.fastapi_app = fastapi_app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        app: ASGIApp | None = None
        if scope["type"] == "http" and self._console is not None:
            app = self._console.app_for(scope)
        await (app or self.fastapi_app)(scope, receive, send)


def _fastapi_app(gateway: Gateway) -> FastAPI:
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
        # FastAPI's own telemetry is disabled because it would export query strings and exception messages if the
        # process has a telemetry provider. FastAPI versions without telemetry ignore the argument.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.gateway = gateway
    install_exception_handlers(app)
    app.add_middleware(RetryMiddleware)
    # Cache the OpenAPI document: building it takes tens of milliseconds, and clients can request it without
    # authentication.
    app.state.document_json = cache(lambda: strict_json.dumps(describe(ROUTERS)).encode())
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(files_router)
    app.include_router(authzen_below_path)
    # The OpenAPI document omits these routes, because only Slack, the payment provider and the operator send requests
    # to them.
    app.include_router(slack_intake)
    if gateway.provider_signature is not None:
        app.include_router(provider_routes(gateway.provider_signature))
    if gateway.settings.operator_token is not None:
        app.include_router(operator_routes(gateway.settings.operator_token))
    return app
