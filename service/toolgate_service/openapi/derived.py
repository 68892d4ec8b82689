"""What a route's own dependencies say about it: who may call, and how it may refuse whatever it does.

Nobody writes these down beside a route, so nobody forgets them.
"""

import inspect
from collections.abc import Iterator
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from toolgate_service.accounts.caller import authenticated, changing
from toolgate_service.gateway import gateway_of
from toolgate_service.openapi.problems import (
    ELSEWHERE,
    FAILED,
    FORBIDDEN,
    HEAD_TOO_LARGE,
    INVALID,
    NO_KEY,
    NO_TOKEN,
    RATE_LIMIT,
    SLOW,
    TOO_LARGE,
    TOO_MANY,
    UNAVAILABLE,
    Problem,
)
from toolgate_service.organizations.key_caller import key_caller
from toolgate_service.web.paging import Page

#: whatever is asked, of whomever
ALWAYS = (SLOW, HEAD_TOO_LARGE, FAILED)

BEARER = "bearer"
API_KEY = "apiKey"

SECURITY_SCHEMES = {
    BEARER: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The `access_token` of a login or registration; works for seven days.",
    },
    API_KEY: {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "An organization's key, or one that acts only as a single agent. "
        "`ak_…` selects the production environment, `test_…` the test environment.",
    },
}


def security(route: APIRoute) -> list[dict[str, Any]]:
    """Return the credential that a route asks for; an empty list for none."""
    calls = _calls(route)
    if authenticated in calls:
        return [{BEARER: []}]
    if key_caller in calls:
        return [{API_KEY: []}]
    return []


def refusals(route: APIRoute) -> list[Problem]:
    """Return how a route may refuse by what it depends on and what it reads."""
    calls = _calls(route)
    found = []
    if route.body_field is not None:
        found += [INVALID, TOO_LARGE]
    elif any(dependant.query_params for dependant in _tree(route.dependant)):
        found.append(INVALID)
    if authenticated in calls:
        found += [NO_TOKEN, TOO_MANY]
    if changing in calls:
        found.append(FORBIDDEN)
    if key_caller in calls:
        found += [NO_KEY, ELSEWHERE, RATE_LIMIT]
    if gateway_of in calls:
        found.append(UNAVAILABLE)
    return [*found, *ALWAYS]


def paged(route: APIRoute) -> bool:
    """Say whether a route answers pages of a list."""
    return any(inspect.signature(call).return_annotation is Page for call in _calls(route) if callable(call))


def _calls(route: APIRoute) -> set[object]:
    return {dependant.call for dependant in _tree(route.dependant)}


def _tree(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for inner in dependant.dependencies:
        yield from _tree(inner)
