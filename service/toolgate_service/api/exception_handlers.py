"""Exception handlers, which turn every error into a JSON response with a detail and a code."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from toolgate_service.api.middleware import failure
from toolgate_service.core.errors import ApiError
from toolgate_service.core.schemas import field_messages
from toolgate_service.http.responses import ErrorReply

METHOD_NOT_ALLOWED = 405


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, ApiError):
        return ErrorReply(error.detail, error.status_code, error.headers)
    if isinstance(error, HTTPException):
        # Replace Starlette's Allow header: it lists the methods of one route, but several routes may have the same
        # path.
        headers = {"Allow": _allowed(request)} if error.status_code == METHOD_NOT_ALLOWED else error.headers
        return ErrorReply(error.detail, error.status_code, headers)
    raise error


def _allowed(request: Request) -> str:
    routes: list[BaseRoute] = request.app.routes
    methods = [
        method
        for method in ("DELETE", "GET", "POST", "PUT")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    # A path with GET also accepts HEAD, and a path with PUT also accepts PATCH: `EdgeMiddleware` converts HEAD to GET,
    # and PATCH to PUT.
    also = {"GET": "GET, HEAD", "PUT": "PUT, PATCH"}
    return ", ".join(also.get(method, method) for method in methods)


async def _invalid(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    # The first part of each path is the location of the field: body, query or path.
    return ErrorReply(field_messages(error.errors(), outer=1), 400)


async def _failed(request: Request, error: Exception) -> Response:
    # Do not log the error here: Starlette sends this response and raises the error again, and `EdgeMiddleware` logs it.
    return failure(request.scope, error)


def install_exception_handlers(app: FastAPI) -> None:
    """Register the exception handlers of this module with the FastAPI application."""
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _failed)
