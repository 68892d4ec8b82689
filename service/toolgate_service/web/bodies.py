"""Management bodies: JSON read strictly whatever the Content-Type, unknown fields refused (decisions §2).

A request is authenticated and counted before its body is read. Without a credential, as at a login, the body is
small.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, ClassVar, TypeAlias, TypeVar

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue, ValidationInfo, field_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from toolgate_service import exact_json
from toolgate_service.errors import ApiError, FieldErrors
from toolgate_service.web.auth_failures import AuthFailures
from toolgate_service.web.parsing import BodyParser
from toolgate_service.web.sizes import MAX_OPEN_BODY, limit_body


class Body(BaseModel):
    """The base of every management request."""

    model_config = ConfigDict(extra="forbid", strict=True)


def example(**fields: JsonValue) -> ConfigDict:
    """Return the `model_config` of a body with an example for the OpenAPI document; a test sends it."""
    return ConfigDict(json_schema_extra={"examples": [dict(fields)]})


class Change(Body):
    """The base of requests that change a thing: what is not sent stays as it is.

    Attributes:
        nullable: names of fields that may be set to null.
    """

    nullable: ClassVar[frozenset[str]] = frozenset()

    @field_validator("*", mode="before")
    @classmethod
    def _no_null(cls, value: object, info: ValidationInfo) -> object:
        # A default is not validated: this sees only a null that was sent.
        if value is None and info.field_name not in cls.nullable:
            raise ValueError("must not be null; leave it out to keep it")
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, member in schema.get("properties", {}).items():
            some = [one for one in member.get("anyOf", ()) if one != {"type": "null"}]
            if name not in cls.nullable and len(some) == 1:
                del member["anyOf"]
                member.update(some[0])
        return schema


#: members of a body; the largest model has a third of them. Each unknown one would cost a message in the answer.
MAX_MEMBERS = 64
#: JSON values in a body that is read without authentication
MAX_OPEN_NODES = 64

#: the scope's key for the results of dependencies that were called before the body was read
_RESULTS = "toolgate.from_headers"

Result = TypeVar("Result")
#: given a request and the gateway
HeaderDependency: TypeAlias = Callable[[Request, Any], Awaitable[Result]]

_from_headers: set[object] = set()


def from_headers(dependency: HeaderDependency[Result]) -> HeaderDependency[Result]:
    """Have a dependency called before the body is read. It may use the headers alone, and raises to refuse the request.

    FastAPI reads bodies first. A `StrictRoute` calls the marked dependencies of its endpoint before that, and FastAPI
    then gets their results.

    Args:
        dependency: given the request and the gateway.
    """

    @wraps(dependency)
    async def once(request: Request, gateway: Any) -> Result:
        results: dict[object, Result] = request.scope.setdefault(_RESULTS, {})
        if once not in results:
            results[once] = await dependency(request, gateway)
        return results[once]

    _from_headers.add(once)
    return once


#: stands for a body that could not be read; every `Body` refuses the unknown field
_UNREADABLE = {"\0": None}


class StrictRequest(Request):
    """A request whose JSON is read by `exact_json`."""

    #: why the body is no JSON object, or too large
    problem: ApiError | None = None

    #: JSON values that the body may have; an open endpoint lowers it
    max_nodes = exact_json.MAX_NODES

    async def json(self) -> Any:
        """Return the body's value, or keep the problem until the caller's role was judged: FastAPI reads first."""
        parser: BodyParser = self.app.state.gateway.parser
        try:
            raw = await self.body()
            value = await parser.run(len(raw), lambda: read_object(raw, max_nodes=self.max_nodes))
            if len(value) > MAX_MEMBERS:
                what = f"The body has {len(value)} members; no request takes more than {MAX_MEMBERS}"
                raise FieldErrors({"body": [what]})
        except ApiError as problem:
            self.problem = problem
            return _UNREADABLE
        return value


class StrictRoute(APIRoute):
    """A route that authenticates first and reads its body with `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap FastAPI's handler."""
        handler = super().get_route_handler()
        first = [one for one in _calls_of(self.dependant) if one in _from_headers]
        takes_none = self.body_field is None

        async def strict(request: Request) -> Response:
            # FastAPI parses only what calls itself JSON; here everything is read as JSON or refused.
            MutableHeaders(scope=request.scope)["content-type"] = "application/json"
            strictly = StrictRequest(request.scope, request.receive)
            for dependency in first:
                await dependency(strictly, request.app.state.gateway)
            if not first:
                limit_body(request.scope, MAX_OPEN_BODY)
                strictly.max_nodes = MAX_OPEN_NODES
            if takes_none:
                # To its end nevertheless: nothing is done for a request that was cut off or never ends.
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
            except (HTTPException, RequestValidationError):
                failures.count(address)
                raise

        return strict if first or takes_none else open_to_all


def _calls_of(dependant: Dependant) -> Iterable[Any]:
    for one in dependant.dependencies:
        yield one.call
        yield from _calls_of(one)


def read_object(raw: bytes, *, max_nodes: int = exact_json.MAX_NODES) -> dict[str, exact_json.Json]:
    """Read a body that must be a JSON object.

    Args:
        raw: the body.
        max_nodes: as for `exact_json.loads`.

    Raises:
        FieldErrors: it is not; the message says why under ``body``.
    """
    try:
        value = exact_json.loads(raw, max_nodes=max_nodes)
    except exact_json.InvalidJson as error:
        raise FieldErrors({"body": [str(error)]}) from None
    if not isinstance(value, dict):
        raise FieldErrors({"body": ["The body must be a JSON object"]})
    return value
