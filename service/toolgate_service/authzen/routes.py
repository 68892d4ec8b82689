"""ASGI endpoints of the AuthZEN API, and the route of its metadata.

Errors of these endpoints have a JSON string as their body, and every response contains the header `X-Request-ID` of the
request unchanged (`http.responses`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from fastapi import APIRouter, Request

from toolgate_service.access_requests.evaluator import Evaluator
from toolgate_service.authzen.mapping import to_check
from toolgate_service.authzen.metadata import (
    EVALUATION,
    EVALUATIONS,
    SEARCH_ACTION,
    SEARCH_RESOURCE,
    SEARCH_SUBJECT,
    WELL_KNOWN,
    AuthzenConfiguration,
    build_metadata,
)
from toolgate_service.authzen.openapi import DESCRIPTIONS, EVALUATION_HEADERS
from toolgate_service.authzen.schemas import (
    Batch,
    Evaluation,
    Kind,
    read_evaluation,
    read_evaluations,
    read_search,
)
from toolgate_service.authzen.search import run_search
from toolgate_service.authzen.service import decision_body, evaluate_batch
from toolgate_service.checks.headers import DECISION_ID, OUTCOME, decision_headers, outcome_of
from toolgate_service.context import KeyCaller
from toolgate_service.core.concurrency import MAX_ON_LOOP
from toolgate_service.core.errors import FieldErrors, not_found
from toolgate_service.core.schemas import schema_reference
from toolgate_service.core.sdk_fields import idempotency_key
from toolgate_service.core.strict_json import Json, read_object, refuse_deep
from toolgate_service.gateway import Gateway
from toolgate_service.http.asgi import Handler, PlainRequest, PlainResponse, add_headers
from toolgate_service.http.dependencies import GatewayDep, authenticate_api_key, base_url
from toolgate_service.http.openapi import IDEMPOTENCY_KEY, operation, references
from toolgate_service.http.responses import Reply
from toolgate_service.http.strict_route import StrictRoute

Result = TypeVar("Result")
Respond: TypeAlias = Callable[[PlainRequest, KeyCaller, bytes], Awaitable[PlainResponse]]

_JSON = "application/json"
_FIRST_ERROR, _UNAUTHENTICATED = 400, 401
#: sentence that is removed from the descriptions of errors, because the body of AuthZEN errors is a text
_FIELD_MESSAGES = " `detail` contains the messages of each field."
#: maximum age of the metadata in caches, in seconds
_MAX_AGE = 300


def evaluation_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of `POST /access/v1/evaluation`."""

    async def respond(received: PlainRequest, caller: KeyCaller, raw: bytes) -> PlainResponse:
        evaluation = await _parse(gateway, raw, read_evaluation)
        return await _evaluate(gateway, received, caller, raw, evaluation)

    return _endpoint(gateway, respond)


def evaluations_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of `POST /access/v1/evaluations`."""

    async def respond(received: PlainRequest, caller: KeyCaller, raw: bytes) -> PlainResponse:
        request = await _parse(gateway, raw, read_evaluations)
        if not isinstance(request, Batch):
            return await _evaluate(gateway, received, caller, raw, request)
        retry_key = idempotency_key(received.header(b"idempotency-key"))
        await _count(gateway, received, caller, len(request.items) - 1)
        evaluator = _evaluator(gateway, received)
        return PlainResponse(await evaluate_batch(evaluator, caller, request, raw, retry_key))

    return _endpoint(gateway, respond)


def search_endpoint(kind: Kind) -> Callable[[Gateway], Handler]:
    """Return the function that creates the handler of `POST /access/v1/search/<kind>`."""

    def create(gateway: Gateway) -> Handler:
        async def respond(_received: PlainRequest, caller: KeyCaller, raw: bytes) -> PlainResponse:
            search = await _parse(gateway, raw, lambda body: read_search(kind, body))
            return PlainResponse(
                await run_search(gateway.checker, gateway.database, gateway.rules, caller, search)
            )

        return _endpoint(gateway, respond)

    return create


def _endpoint(gateway: Gateway, respond: Respond) -> Handler:
    async def handle(received: PlainRequest) -> PlainResponse:
        caller = await authenticate_api_key(received.scope, gateway, "actions")
        raw = await received.read()
        media_type = (received.header(b"content-type") or "").partition(";")[0]
        if media_type != _JSON and media_type.strip(" \t").lower() != _JSON:
            raise FieldErrors({"Content-Type": [f"must be {_JSON}"]})
        return await respond(received, caller, raw)

    return handle


async def _parse(gateway: Gateway, raw: bytes, read: Callable[[dict[str, Json]], Result]) -> Result:
    def parse() -> Result:
        body = read_object(raw)
        refuse_deep(body)
        return read(body)

    return parse() if len(raw) <= MAX_ON_LOOP else await gateway.parser.run(len(raw), parse)


async def _evaluate(
    gateway: Gateway, received: PlainRequest, caller: KeyCaller, raw: bytes, evaluation: Evaluation
) -> PlainResponse:
    request = to_check(evaluation, caller.context.key_agent_id, raw)
    retry_key = idempotency_key(received.header(b"idempotency-key"))
    evaluated = await _evaluator(gateway, received).evaluate(caller, evaluation, request, raw, retry_key)
    decision, decision_id, _ = evaluated
    received.scope[OUTCOME] = outcome_of(decision)
    headers = {} if decision_id is None else {DECISION_ID: decision_id.encode()}
    add_headers(received.scope, headers | decision_headers(decision))
    return PlainResponse(decision_body(evaluated, explain=True))


def _evaluator(gateway: Gateway, received: PlainRequest) -> Evaluator:
    return Evaluator(gateway, gateway.checker, base_url(gateway, received.scope))


async def _count(gateway: Gateway, received: PlainRequest, caller: KeyCaller, more: int) -> None:
    """Count `more` evaluations towards the rate limit. The authentication has counted the first one of the request.

    Raises:
        ApiError: 429 if the rate limit is exceeded. No evaluation of the request is decided then.
    """
    context = caller.context
    scope, limit = f"{context.environment}/actions", context.rate_limit(gateway.plans)
    counts = (gateway.rate_limiter.count(context.organization_id, scope, limit) for _ in range(more))
    rates = await asyncio.gather(*counts)
    if not rates:
        return
    rate = min(rates, key=lambda one: (not one.exceeded, one.remaining))
    add_headers(received.scope, rate.headers())
    if rate.exceeded:
        raise rate.refusal()


#: plain ASGI endpoints by path
ENDPOINTS: dict[str, Callable[[Gateway], Handler]] = {
    EVALUATION: evaluation_endpoint,
    EVALUATIONS: evaluations_endpoint,
    SEARCH_SUBJECT: search_endpoint("subject"),
    SEARCH_RESOURCE: search_endpoint("resource"),
    SEARCH_ACTION: search_endpoint("action"),
}


def _describe(path: str) -> dict[str, Any]:
    body, answer, name, summary, description = DESCRIPTIONS[path]
    is_evaluation = path in {EVALUATION, EVALUATIONS}
    described = operation(
        name,
        summary,
        description,
        body=body,
        answer=answer,
        ok="Decision." if is_evaluation else "Permitted entities.",
        headers=EVALUATION_HEADERS if is_evaluation else (),
        parameters=(IDEMPOTENCY_KEY,) if is_evaluation else (),
    )
    described["tags"] = ["authzen"]
    for status, response in described["responses"].items():
        headers = response.setdefault("headers", {})
        # The specification allows any text as the id of a request.
        headers["X-Request-ID"] = {"$ref": "#/components/headers/Echoed-Request-ID"}
        if int(status) >= _FIRST_ERROR:
            response["content"] = {_JSON: {"schema": schema_reference("AuthzenError")}}
            response["description"] = response["description"].replace(_FIELD_MESSAGES, "")
        if int(status) == _UNAUTHENTICATED:
            headers |= references("WWW-Authenticate")
    return described


#: OpenAPI operations of the plain ASGI endpoints, by path
OPERATIONS = {path: _describe(path) for path in ENDPOINTS}

router = APIRouter(tags=["authzen"], route_class=StrictRoute)


@router.get(WELL_KNOWN, response_model=AuthzenConfiguration, summary="Get the AuthZEN metadata")
async def get_authzen_configuration(request: Request, gateway: GatewayDep) -> Reply:
    """Return the metadata of the gateway as an AuthZEN policy decision point.

    The URLs begin with `TOOLGATE_PUBLIC_URL`.
    """
    return _metadata(request, gateway)


#: router for the metadata of a gateway whose public URL has a path; the OpenAPI document omits the route, because it
#: responds with 404 on all other gateways
base_path_router = APIRouter(route_class=StrictRoute)


@base_path_router.get(WELL_KNOWN + "/{base_path:path}", include_in_schema=False)
async def get_authzen_configuration_below_path(
    base_path: str, request: Request, gateway: GatewayDep
) -> Reply:
    """Return the metadata of a gateway whose public URL has this path.

    Raises:
        ApiError: 404 if `TOOLGATE_PUBLIC_URL` has another path or is not set.
    """
    public = urlsplit(gateway.settings.public_url or "")
    if not base_path or public.path != f"/{base_path}":
        raise not_found("AuthZEN metadata")
    return _metadata(request, gateway)


def _metadata(request: Request, gateway: Gateway) -> Reply:
    return Reply(
        build_metadata(base_url(gateway, request.scope)), headers={"Cache-Control": f"max-age={_MAX_AGE}"}
    )
