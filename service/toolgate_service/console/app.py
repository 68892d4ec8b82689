"""ASGI application of the console: routes, security checks and error pages."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service.api.middleware import RetryMiddleware
from toolgate_service.console import (
    agents,
    auth_pages,
    budgets,
    decisions,
    freezes,
    inbox,
    logs,
    overview,
    policy,
    receipts,
    rules,
    security,
    settings,
    settings_webhooks,
    simulator,
    start,
)
from toolgate_service.console.dependencies import (
    PART,
    allow_user,
    error_message,
    error_title,
    form_route,
    page_route,
)
from toolgate_service.console.streams import EventStreams
from toolgate_service.console.templates import render_partial, render_public_page, serve_static
from toolgate_service.core.errors import ApiError
from toolgate_service.db.health import STORAGE_FAULTS
from toolgate_service.db.models import TEST
from toolgate_service.gateway import Gateway
from toolgate_service.http.responses import REQUEST_ID

_UNAUTHENTICATED = 401
_NOT_ALLOWED = 405

#: Routes of static files, redirects, and the pages for sign-in, sign-out, registration and password reset.
PUBLIC_ROUTES: Sequence[Route] = (
    Route("/console", auth_pages.redirect_home),
    Route("/console/static/{name}", serve_static),
    Route("/console/sign-in", auth_pages.show_sign_in, methods=["GET"]),
    Route("/console/sign-in", auth_pages.sign_in, methods=["POST"]),
    form_route("/console/sign-out", auth_pages.sign_out, authorize=allow_user),
    Route("/console/register", auth_pages.show_register, methods=["GET"]),
    Route("/console/register", auth_pages.register, methods=["POST"]),
    Route("/console/invitation", auth_pages.show_invitation, methods=["GET"]),
    Route("/console/invitation", auth_pages.accept_invitation, methods=["POST"]),
    Route("/console/password-reset", auth_pages.show_reset, methods=["GET"]),
    Route("/console/password-reset", auth_pages.reset_password, methods=["POST"]),
    Route("/console/forgotten", auth_pages.show_forgotten, methods=["GET"]),
    Route("/console/forgotten", auth_pages.request_reset_link, methods=["POST"]),
    page_route(settings.UPGRADE, settings.redirect_to_plan),
)

ROUTES: Sequence[Route] = (
    *PUBLIC_ROUTES,
    *overview.ROUTES,
    *inbox.ROUTES,
    *agents.ROUTES,
    *rules.ROUTES,
    *budgets.ROUTES,
    *freezes.ROUTES,
    *policy.ROUTES,
    *receipts.ROUTES,
    *simulator.ROUTES,
    *logs.ROUTES,
    *decisions.ROUTES,
    *settings.ROUTES,
    *settings_webhooks.ROUTES,
    *start.ROUTES,
)


def create_console(gateway: Gateway) -> ASGIApp:
    """Create the ASGI application that serves the web console of `gateway`."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(RetryMiddleware)],
        exception_handlers={
            ApiError: _handle_http_error,
            HTTPException: _handle_http_error,
            Exception: _handle_failure,
        },
    )
    app.router.redirect_slashes = False
    app.state.gateway = gateway
    app.state.live = EventStreams(gateway)
    return _SecurityMiddleware(app, gateway)


class _SecurityMiddleware:
    """Middleware that rejects requests with an unknown host name, and forms that were submitted by another web site."""

    def __init__(self, app: Starlette, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            security.check_host(request, self._gateway)
            if scope["method"] != "GET":
                security.check_origin(request, self._gateway)
        except ApiError as error:
            await _error_page(request, error.status_code, error_message(error))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError | HTTPException):
        raise error
    if error.status_code == _UNAUTHENTICATED and PART not in request.headers:
        return auth_pages.redirect_to_sign_in(request)
    message = error_message(error) if isinstance(error, ApiError) else error.detail
    response = _error_page(request, error.status_code, message)
    if error.headers and "Retry-After" in error.headers:
        response.headers["Retry-After"] = error.headers["Retry-After"]
    if error.status_code == _NOT_ALLOWED:
        response.headers["Allow"] = ", ".join(sorted(_methods_of(request.url.path)))
    return response


def _methods_of(path: str) -> set[str]:
    # Collect the methods of all routes with this path, because Starlette's Allow header lists the methods of only one
    # of them. For example, a page (GET) and its form (POST) are two routes.
    found = [route for route in ROUTES if route.path_regex.match(path)]
    return {method for route in found for method in route.methods or ()}


async def _handle_failure(request: Request, error: Exception) -> Response:
    # Do not log the error here: Starlette sends this response and raises the error again, and `EdgeMiddleware` logs it.
    if isinstance(error, STORAGE_FAULTS):
        response = _error_page(
            request,
            503,
            "If you made a change, it may not have been saved. Reload the page in a few seconds, and check whether the "
            "change was saved before you try again.",
        )
        response.headers["Retry-After"] = "1"
        return response
    message = (
        "If you made a change, it may or may not have been saved: check whether it was saved before you try again. The "
        f"operator of the gateway finds the error in the gateway's log under request id {request.scope[REQUEST_ID]}."
    )
    return _error_page(request, 500, message)


def _error_page(request: Request, status: int, message: str) -> Response:
    if PART in request.headers:
        return render_partial("part_problem.html", status, message=message)
    is_test = request.query_params.get("environment") == TEST
    return render_public_page(
        "problem.html",
        status,
        code=status,
        title=error_title(status),
        message=message,
        test=TEST if is_test else None,
    )
