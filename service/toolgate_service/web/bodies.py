"""Management bodies: JSON read strictly whatever the Content-Type, unknown fields refused (decisions §2)."""

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue, ValidationInfo, field_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from starlette.datastructures import MutableHeaders

from toolgate_service import exact_json
from toolgate_service.errors import ApiError, FieldErrors


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
