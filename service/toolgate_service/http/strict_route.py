"""FastAPI route that authenticates a request before it reads the body, and then parses the body as strict JSON.

The Content-Type is ignored: every body must be JSON. Endpoints without authentication, such as the login, accept only
small bodies.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, TypeAlias, TypeVar

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from toolgate_service.core import strict_json
from toolgate_service.core.concurrency import BodyParser
from toolgate_service.core.errors import ApiError, FieldErrors
from toolgate_service.http.body_limit import MAX_BODY, MAX_OPEN_BODY, limit_body
from toolgate_service.rate_limit.auth_failures import AuthFailures

#: Maximum number of top-level members of a JSON body. The largest request model has a third as many fields. The limit
#: keeps error responses small, because they contain a message for each unknown member.
MAX_MEMBERS = 64
#: maximum number of JSON values in a body that is sent without authentication
MAX_OPEN_NODES = 64

#: ASGI scope key of a dictionary with the results of the dependencies that ran before the body was read
_RESULTS = "toolgate.from_headers"

Result = TypeVar("Result")
#: asynchronous function that receives the request and the gateway, and reads only the request's headers
HeaderDependency: TypeAlias = Callable[[Request, Any], Awaitable[Result]]

_from_headers: set[object] = set()


def from_headers(dependency: HeaderDependency[Result]) -> HeaderDependency[Result]:
    """Mark a FastAPI dependency that reads only headers, so that a `StrictRoute` calls it before it reads the body.

    FastAPI itself reads the body before it calls dependencies. The route therefore calls the marked dependencies first
    and stores their results, which FastAPI then receives. A dependency raises an exception to reject the request.
    """

    @wraps(dependency)
    async def once(request: Request, gateway: Any) -> Result:
        results: dict[object, Result] = request.scope.setdefault(_RESULTS, {})
        if once not in results:
            results[once] = await dependency(request, gateway)
        return results[once]

    _from_headers.add(once)
    return once


#: value that replaces a body that could not be parsed: it makes validation fail, because no request model is a list
_UNREADABLE: list[object] = []


class StrictRequest(Request):
    """Request whose body is parsed by `strict_json`."""

    #: error that occurred when the body was parsed, for example because it is not a JSON object; None without an error
    problem: ApiError | None = None

    #: maximum number of JSON values in the body
    max_nodes = strict_json.MAX_NODES

    async def json(self) -> Any:
        """Return the parsed body.

        FastAPI calls this method before it checks the caller's role. An error is therefore stored in `problem` instead
        of raised, so that a caller without permission receives the status 403.
        """
        parser: BodyParser = self.app.state.gateway.parser
        try:
            raw = await self.body()
            value = await parser.run(len(raw), lambda: strict_json.read_object(raw, max_nodes=self.max_nodes))
            if len(value) > MAX_MEMBERS:
                what = f"The body has {len(value)} members; the maximum is {MAX_MEMBERS}"
                raise FieldErrors({"body": [what]})
        except ApiError as problem:
            self.problem = problem
            return _UNREADABLE
        return value


class StrictRoute(APIRoute):
    """FastAPI route that authenticates the request before it reads the body, which `StrictRequest` parses.

    Attributes:
        max_body: Maximum size of the body of an authenticated request in bytes.
        max_nodes: Maximum number of JSON values in this body.
    """

    max_body = MAX_BODY
    max_nodes = strict_json.MAX_NODES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that authenticates the request, reads its body and then calls FastAPI's handler."""
        handler = super().get_route_handler()
        first = [one for one in _calls_of(self.dependant) if one in _from_headers]
        takes_none = self.body_field is None

        async def strict(request: Request) -> Response:
            # Set the content type, because FastAPI parses only bodies of this type as JSON. In this API, every body
            # must be JSON.
            MutableHeaders(scope=request.scope)["content-type"] = "application/json"
            strictly = StrictRequest(request.scope, request.receive)
            for dependency in first:
                await dependency(strictly, request.app.state.gateway)
            limit_body(request.scope, self.max_body if first else MAX_OPEN_BODY)
            strictly.max_nodes = self.max_nodes if first else MAX_OPEN_NODES
            # Read the whole body before the handler runs, even if the route ignores it, so that an incomplete request
            # has no effect. If FastAPI read it, an `ApiError` such as 413 would become a 400.
            await strictly.body()
            try:
                return await handler(strictly)
            except RequestValidationError:
                if strictly.problem is not None:
                    raise strictly.problem from None
                raise

        async def open_to_all(request: Request) -> Response:
            failures: AuthFailures = request.app.state.gateway.auth_failures
            address = request.client.host if request.client else None
            await failures.admit_open(address)
            try:
                return await strict(request)
            except (ApiError, HTTPException, RequestValidationError):
                failures.count(address)
                raise

        return strict if first or takes_none else open_to_all


def _calls_of(dependant: Dependant) -> Iterable[Any]:
    for one in dependant.dependencies:
        yield one.call
        yield from _calls_of(one)
