"""Management bodies: JSON read strictly whatever the Content-Type, unknown fields refused (decisions §2)."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import MutableHeaders

from toolgate_service import exact_json
from toolgate_service.errors import ApiError, FieldErrors


class Body(BaseModel):
    """The base of every management request."""

    model_config = ConfigDict(extra="forbid", strict=True)


#: stands for a body that could not be read; every `Body` refuses the unknown field
_UNREADABLE = {"\0": None}


class StrictRequest(Request):
    """A request whose JSON is read by `exact_json`."""

    #: why the body is no JSON object, or too large
    problem: ApiError | None = None

    async def json(self) -> Any:
        """Return the body's value, or keep the problem for later: FastAPI reads before it knows who asks."""
        try:
            return read_object(await self.body())
        except ApiError as problem:
            self.problem = problem
            return _UNREADABLE


class StrictRoute(APIRoute):
    """A route that reads its body with `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap FastAPI's handler."""
        handler = super().get_route_handler()
        takes_none = self.body_field is None

        async def strict(request: Request) -> Response:
            # FastAPI parses only what calls itself JSON; here everything is read as JSON or refused.
            MutableHeaders(scope=request.scope)["content-type"] = "application/json"
            strictly = StrictRequest(request.scope, request.receive)
            if takes_none:
                # To its end nevertheless: nothing is done for a request that was cut off or never ends.
                await strictly.body()
            try:
                return await handler(strictly)
            except RequestValidationError:
                # By now the caller is known.
                if strictly.problem is not None:
                    raise strictly.problem from None
                raise

        return strict


def read_object(raw: bytes) -> dict[str, exact_json.Json]:
    """Read a body that must be a JSON object.

    Raises:
        FieldErrors: it is not; the message says why under ``body``.
    """
    try:
        value = exact_json.loads(raw)
    except exact_json.InvalidJson as error:
        raise FieldErrors({"body": [str(error)]}) from None
    if not isinstance(value, dict):
        raise FieldErrors({"body": ["The body must be a JSON object"]})
    return value
