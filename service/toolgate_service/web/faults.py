"""Every error as ``{"detail": …}`` (spec §7)."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from toolgate_service.errors import REQUIRED, ApiError
from toolgate_service.web.edge import failure
from toolgate_service.web.replies import Reply

METHOD_NOT_ALLOWED = 405

_MESSAGES = {"missing": REQUIRED, "extra_forbidden": "Unknown field; remove it"}


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, ApiError):
        return Reply({"detail": error.reply_detail}, error.status_code, error.headers)
    if isinstance(error, HTTPException):
        # Starlette names the methods of one route, and a path may have several.
        headers = {"Allow": _allowed(request)} if error.status_code == METHOD_NOT_ALLOWED else error.headers
        return Reply({"detail": error.detail}, error.status_code, headers)
    raise error


def _allowed(request: Request) -> str:
    routes: list[BaseRoute] = request.app.routes
    methods = [
        method
        for method in ("DELETE", "GET", "POST", "PUT")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    # The edge answers HEAD wherever there is a GET.
    return ", ".join(method.replace("GET", "GET, HEAD") for method in methods)


async def _invalid(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    fields: dict[str, list[str]] = {}
    for problem in error.errors():
        where = [str(part) for part in problem["loc"]]
        # The first part says body, query or path; what follows names the field.
        name = ".".join(where[1:]) or where[0]
        message = _MESSAGES.get(problem["type"]) or str(problem["msg"]).removeprefix("Value error, ")
        fields.setdefault(name, []).append(message)
    return Reply({"detail": fields}, 400)


async def _failed(request: Request, error: Exception) -> Response:
    # Starlette sends this and raises the error again; the edge logs it.
    return failure(request.scope, error)


def tell_faults(app: FastAPI) -> None:
    """Install the handlers."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _failed)
