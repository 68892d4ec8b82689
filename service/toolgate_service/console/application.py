"""The console as an ASGI application: its routes, and what goes for all of them."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service.console import entrance, grants, safety
from toolgate_service.console.agents import keys as agent_keys
from toolgate_service.console.agents import routes as agents
from toolgate_service.console.agents import trying
from toolgate_service.console.inbox import routes as inbox
from toolgate_service.console.live import Live
from toolgate_service.console.logs import routes as logs
from toolgate_service.console.overview import routes as overview
from toolgate_service.console.problems import title_of, words_of
from toolgate_service.console.rendering import bare_page, part
from toolgate_service.console.settings import plan
from toolgate_service.console.settings import routes as settings
from toolgate_service.console.start import routes as start
from toolgate_service.console.statics import static
from toolgate_service.console.visits import PART, by_anybody, deed, page
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.storage.base import TEST
from toolgate_service.web.anew import Anew
from toolgate_service.web.edge import REQUEST_ID, STORAGE_FAULTS

_UNAUTHENTICATED = 401
_NOT_ALLOWED = 405

ENTRANCE: Sequence[Route] = (
    Route("/console", entrance.home),
    Route("/console/static/{name}", static),
    Route("/console/sign-in", entrance.sign_in_page, methods=["GET"]),
    Route("/console/sign-in", entrance.sign_in, methods=["POST"]),
    Route("/console/sign-out", deed(entrance.sign_out, by=by_anybody), methods=["POST"]),
    Route("/console/register", entrance.register_page, methods=["GET"]),
    Route("/console/register", entrance.register, methods=["POST"]),
    Route("/console/invitation", entrance.invitation_page, methods=["GET"]),
    Route("/console/invitation", entrance.accept_invitation, methods=["POST"]),
    Route("/console/password-reset", entrance.reset_page, methods=["GET"]),
    Route("/console/password-reset", entrance.reset, methods=["POST"]),
    Route("/console/forgotten", entrance.forgotten_page, methods=["GET"]),
    Route("/console/forgotten", entrance.ask_for_link, methods=["POST"]),
    Route(plan.UPGRADE, page(plan.upgrade), methods=["GET"]),
)

#: every page and every form
ROUTES: Sequence[Route] = (
    *ENTRANCE,
    *overview.ROUTES,
    *inbox.ROUTES,
    *grants.ROUTES,
    *agents.ROUTES,
    *trying.ROUTES,
    *agent_keys.ROUTES,
    *logs.ROUTES,
    *settings.ROUTES,
    *start.ROUTES,
)


def console(gateway: Gateway) -> ASGIApp:
    """Build the console of a gateway."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Anew)],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    app.router.redirect_slashes = False
    app.state.gateway = gateway
    app.state.live = Live(gateway)
    return _Guarded(app, gateway)


class _Guarded:
    """Lets no request further that comes by a strange name, or changes something from a strange page."""

    def __init__(self, app: Starlette, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            safety.refuse_strange_host(request, self._gateway)
            if scope["method"] != "GET":
                safety.refuse_foreign_page(request, self._gateway)
        except ApiError as error:
            await _told(request, error.status_code, words_of(error))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == _UNAUTHENTICATED and PART not in request.headers:
        return entrance.sign_in_at(request)
    said = words_of(error) if isinstance(error, ApiError) else error.detail
    answer = _told(request, error.status_code, said)
    if error.headers and "Retry-After" in error.headers:
        answer.headers["Retry-After"] = error.headers["Retry-After"]
    if error.status_code == _NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(sorted(_methods_of(request.url.path)))
    return answer


def _methods_of(path: str) -> set[str]:
    # A page and its form are two routes of one path; Starlette names the first one's methods.
    found = [route for route in ROUTES if route.path_regex.match(path)]
    return {method for route in found for method in route.methods or ()}


async def _failed(request: Request, error: Exception) -> Response:
    # Starlette sends this and raises the error again; the edge logs it.
    if isinstance(error, STORAGE_FAULTS):
        answer = _told(request, 503, "Nothing may have been changed. Try again in a second.")
        answer.headers["Retry-After"] = "1"
        return answer
    said = f"The operator finds it under request id {request.scope[REQUEST_ID]}. Whether anything was changed is not known: look before you try again."
    return _told(request, 500, said)


def _told(request: Request, status: int, said: str) -> Response:
    if PART in request.headers:
        return part("part_problem.html", status, said=said)
    is_test = request.query_params.get("environment") == TEST
    return bare_page(
        "problem.html", status, code=status, title=title_of(status), said=said, test=TEST if is_test else None
    )
