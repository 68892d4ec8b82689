"""HTTP routes of access requests, and of the public keys that verify the values signed by the gateway.

Errors of the access requests are `application/problem+json` (`http.responses`).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request

from toolgate_service.access_requests import service
from toolgate_service.access_requests.schemas import Cancellation, JsonWebKeySet, Submission, TaskView
from toolgate_service.access_requests.service import POLL_SECONDS, TaskResponse
from toolgate_service.access_requests.signing import Signer
from toolgate_service.approvals.models import PENDING
from toolgate_service.authzen.metadata import ACCESS_REQUESTS, JWKS
from toolgate_service.core.schemas import HEADER_REFERENCE
from toolgate_service.core.sdk_fields import idempotency_key
from toolgate_service.http.dependencies import AnyKey, EnforcingKey, GatewayDep, base_url
from toolgate_service.http.openapi import CONFLICT, GONE, NOT_FOUND, REFUSED, Responses, problems
from toolgate_service.http.responses import Reply
from toolgate_service.http.strict_route import StrictRoute

router = APIRouter(tags=["authzen"], route_class=StrictRoute)

#: maximum age of the public keys in caches, in seconds; the former key of a rotated secret stays valid for longer
_MAX_AGE = 300

_DECIDED: Responses = {201: {"model": TaskView, "description": "The access request was already decided."}}
AccessRequestIdPath = Annotated[str, Path(description="Id of the access request, a UUID.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Key of this submission, 1-255 printable Latin-1 characters. A retry with the same key and the same body "
        "returns the same task.",
        json_schema_extra=HEADER_REFERENCE,
    ),
]


@router.post(
    ACCESS_REQUESTS,
    response_model=TaskView,
    status_code=202,
    responses=_DECIDED | problems(REFUSED, CONFLICT, GONE),
    summary="Submit an access request",
)
async def submit_access_request(
    submission: Submission,
    request: Request,
    caller: EnforcingKey,
    gateway: GatewayDep,
    key: IdempotencyKey = None,
) -> Reply:
    """Return a task for a denied evaluation that waits for approval, or for several of them.

    The evaluation has created the approval request already. Read the task until it is decided.
    """
    base = base_url(gateway, request.scope)
    response = await service.submit(gateway, caller, submission, idempotency_key(key), base)
    return _reply(response, 202 if response.status == PENDING else 201, {"Location": response.url})


@router.get(
    f"{ACCESS_REQUESTS}/{{access_request_id}}",
    response_model=TaskView,
    responses=problems(NOT_FOUND, GONE),
    summary="Get an access request",
)
async def get_access_request(
    access_request_id: AccessRequestIdPath, request: Request, caller: AnyKey, gateway: GatewayDep
) -> Reply:
    """Return the state of an access request. The header `Retry-After` contains the time until the next read."""
    base = base_url(gateway, request.scope)
    return _reply(await service.get_task(gateway, caller, access_request_id, base))


@router.post(
    f"{ACCESS_REQUESTS}/{{access_request_id}}/cancel",
    response_model=TaskView,
    responses=problems(NOT_FOUND, CONFLICT, GONE),
    summary="Cancel an access request",
)
async def cancel_access_request(
    access_request_id: AccessRequestIdPath,
    request: Request,
    caller: EnforcingKey,
    gateway: GatewayDep,
    body: Cancellation | None = None,
) -> Reply:
    """Cancel the pending approval requests of an access request. The response is 409 if none is pending."""
    base = base_url(gateway, request.scope)
    reason = body.reason if body is not None else None
    return _reply(await service.cancel(gateway, caller, access_request_id, reason, base))


@router.get(JWKS, response_model=JsonWebKeySet, summary="Get the public keys")
async def get_key_set(request: Request, gateway: GatewayDep) -> Reply:
    """Return the public keys that verify the binding tokens of the gateway."""
    signer = Signer(gateway.vault.access_request_keys, base_url(gateway, request.scope))
    return Reply(signer.key_set(), headers={"Cache-Control": f"max-age={_MAX_AGE}"})


def _reply(response: TaskResponse, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    sent: dict[str, Any] = dict(headers or {})
    if response.status == PENDING:
        sent["Retry-After"] = str(POLL_SECONDS)
    return Reply(response.body, status, sent)
