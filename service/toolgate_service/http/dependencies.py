"""FastAPI dependencies and query parameter types that many routes use."""

from typing import Annotated, Literal

from fastapi import Depends, Query, Request
from pydantic import BeforeValidator, Field

from toolgate_service.gateway import Gateway


async def gateway_of(request: Request) -> Gateway:
    """Return the `Gateway` object that serves the request."""
    gateway: Gateway = request.app.state.gateway
    return gateway


GatewayDep = Annotated[Gateway, Depends(gateway_of)]


def _digits(value: object) -> object:
    # Accept only digits: pydantic would also parse 1_0, +5 and 10.0 as integers.
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        raise ValueError("must be a whole number")
    return value


#: query parameter that selects the environment whose data a management request reads or changes
EnvironmentName = Annotated[Literal["production", "test"], Query()]
# `Field` precedes `BeforeValidator`; in the reverse order, the OpenAPI document would not contain the bounds.
PageSize = Annotated[int, Field(ge=1, le=100), BeforeValidator(_digits), Query()]
Offset = Annotated[int, Field(ge=0, le=2**63 - 1), BeforeValidator(_digits), Query()]
#: query parameter with the time that a long-polling request may wait, in seconds
Wait = Annotated[int, Field(ge=0, le=60), BeforeValidator(_digits), Query()]
