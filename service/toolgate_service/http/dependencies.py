"""FastAPI dependencies: authentication, pagination, and query parameters that many routes have.

Requests are authenticated by bearer token (users) or API key (agents). Both are read from the headers, so that an
unauthenticated request is rejected before its body is read.
"""

from time import monotonic
from typing import Annotated, Literal, TypeAlias

from fastapi import Depends, Path, Query, Request
from pydantic import BeforeValidator, Field
from starlette.types import Scope

from toolgate_service.accounts.models import CLI, VIEWER
from toolgate_service.accounts.sessions import Caller, organization_inactive, read_token
from toolgate_service.context import AuthContext, KeyCaller, require_active, require_current
from toolgate_service.core.crypto import Keys
from toolgate_service.core.errors import ApiError, bad_credentials
from toolgate_service.core.logging import ORGANIZATION
from toolgate_service.core.telemetry import span
from toolgate_service.db.pagination import Page, page_behind
from toolgate_service.gateway import Gateway
from toolgate_service.http.asgi import add_headers, header_of, peer_of
from toolgate_service.http.strict_route import from_headers
from toolgate_service.organizations import ip_allowlist
from toolgate_service.organizations.repository import key_digest, may_be_key
from toolgate_service.rate_limit.limiter import Surface


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
EnvironmentName = Annotated[
    Literal["production", "test"],
    Query(description="Environment whose data the request reads or changes: `production` or `test`."),
]
# `Field` must precede `BeforeValidator`: in the reverse order, the OpenAPI document would not contain the bounds.
PageSize = Annotated[
    int,
    Field(ge=1, le=100),
    BeforeValidator(_digits),
    Query(description="Maximum number of items on the page, 1-100."),
]
Offset = Annotated[
    int,
    Field(ge=0, le=2**63 - 1),
    BeforeValidator(_digits),
    Query(
        description="Number of items to skip before the page begins. A large offset is slow; prefer the URL in the "
        "header `Link`."
    ),
]
Cursor = Annotated[
    str | None,
    Query(
        description="Position at which the page begins, from the URL in the header `Link` of the previous page. A cursor "
        "is valid only for the same path and filters."
    ),
]
#: query parameter with the time that a long-polling request may wait, in seconds
Wait = Annotated[
    int,
    Field(ge=0, le=60),
    BeforeValidator(_digits),
    Query(
        description="Maximum time in seconds to wait for a decision, 0-60. With 0, the gateway responds immediately."
    ),
]

# Path parameters that several routes have.
AgentIdPath = Annotated[str, Path(description="Id of the agent, a UUID.")]
PermissionIdPath = Annotated[str, Path(description="Id of the permission, a UUID.")]
ApprovalIdPath = Annotated[
    str, Path(description="Id of the approval request, a UUID: the `approval_id` of a check.")
]
GrantIdPath = Annotated[str, Path(description="Id of the temporary approval, a UUID.")]
UserIdPath = Annotated[str, Path(description="Id of the user, a UUID.")]
WebhookIdPath = Annotated[str, Path(description="Id of the webhook, a UUID.")]

# Filters that several lists have.
AgentFilter = Annotated[str | None, Query(description="Return only items of the agent with this id.")]
ActionFilter = Annotated[str | None, Query(description="Return only items with exactly this action.")]


@from_headers
async def authenticate_token(request: Request, gateway: GatewayDep) -> Caller:
    """Authenticate the bearer token of a request, and count the request against the user's rate limit.

    Raises:
        ApiError: 401 for a missing, malformed, expired or revoked token, without the reason; 429 if the rate limit is
            exceeded.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return await caller_of(request, gateway, token.strip(" \t") if scheme.lower() == "bearer" else "")


async def caller_of(request: Request, gateway: Gateway, token: str) -> Caller:
    """Return the user that a bearer token authenticates, and count the request against the user's rate limit.

    Raises:
        ApiError: 401 if the token is not valid, without the reason; 429 if the rate limit is exceeded.
    """
    claims = read_token(gateway.vault.token_keys, token)
    found = None if claims is None else await gateway.auth_store.sign_in(claims)
    if claims is None or found is None:
        raise await gateway.auth_failures.reject(peer(request), bad_credentials())
    request.scope[ORGANIZATION] = found.organization_id
    caller = Caller(
        user_id=claims.user_id,
        organization_id=found.organization_id,
        session_id=claims.session_id,
        version=claims.version,
        role=found.role,
        scope=found.scope,
        plan=found.plan,
        organization_is_active=bool(found.organization_is_active),
        ip_address=peer(request),
    )
    await _count(request, gateway, caller)
    return caller


def base_url(gateway: Gateway, scope: Scope) -> str:
    """Return the URL of the gateway without a slash at the end: `TOOLGATE_PUBLIC_URL`, or the URL of the request."""
    return gateway.settings.public_url or str(Request(scope).base_url).rstrip("/")


def peer(request: Request) -> str | None:
    """Return the client's IP address; None if the server does not provide it."""
    return request.client.host if request.client else None


async def _count(request: Request, gateway: Gateway, caller: Caller) -> None:
    limit = gateway.settings.management_requests_per_minute
    rate = await gateway.rate_limiter.count(caller.organization_id, f"user/{caller.user_id}", limit)
    add_headers(request.scope, rate.headers())
    if rate.exceeded:
        raise rate.refusal()


AnyCaller = Annotated[Caller, Depends(authenticate_token)]


# `async` although the function awaits nothing: FastAPI would run a synchronous dependency in a thread, which is slower.
async def changing(caller: AnyCaller) -> Caller:
    """Return the caller if the caller may change data.

    Raises:
        ApiError: 403 if the caller's role is viewer or the organization is inactive.
    """
    if not caller.organization_is_active:
        raise organization_inactive()
    if caller.role == VIEWER:
        raise ApiError(403, "Your role is 'viewer', which may only read; ask an admin")
    return caller


async def full_scope(caller: Annotated[Caller, Depends(changing)]) -> Caller:
    """Return the caller if the caller may change data and the token has the scope ``full``.

    Routes that decide approvals, show API keys or change permissions require this scope.

    Raises:
        ApiError: 403 if the token's scope is ``cli``.
    """
    if caller.scope == CLI:
        raise ApiError(
            403,
            "The scope of this token is 'cli', which does not permit this operation; log in with the scope 'full'",
        )
    return caller


async def admin(caller: Annotated[Caller, Depends(full_scope)]) -> Caller:
    """Return the caller if the caller is an admin with the scope ``full``.

    Raises:
        ApiError: 403 if the caller is not an admin.
    """
    if not caller.is_admin:
        raise ApiError(403, f"Your role is {caller.role!r}; only an admin may do that")
    return caller


ChangingCaller = Annotated[Caller, Depends(changing)]
FullCaller = Annotated[Caller, Depends(full_scope)]
AdminCaller = Annotated[Caller, Depends(admin)]


async def authenticate_api_key(scope: Scope, gateway: Gateway, surface: Surface) -> KeyCaller:
    """Authenticate a request by its API key, and count the request against a rate limit.

    `surface` is the group of requests whose rate limit applies, for example ``reads``.

    The function reads only headers, so that it can run before the body is read.

    Raises:
        ApiError: 401 for a missing, unknown or revoked key, or an inactive organization. 403 if the client's address is
            not in the organization's allowed networks. 429 if the rate limit is exceeded, or if too many requests from
            the client's address have failed to authenticate.
        StorageFault: The database did not respond.
    """
    peer = peer_of(scope)
    key = _sent_key(scope)
    digest = key_digest(key)
    if not key:
        raise await gateway.auth_failures.reject(peer, ApiError(401, "Missing API key"))
    result = None
    if may_be_key(key):
        with span("toolgate.gateway.arrive"):
            result = await gateway.auth_store.authenticate(digest, surface)
    try:
        context, rate = require_active(result)
    except ApiError as error:
        raise await gateway.auth_failures.reject(peer, error) from None
    # Return the organization and the environment of the key in response headers. The SDK stores both with its queued
    # log entries, and sends the entries only to the same organization and environment.
    add_headers(
        scope,
        {
            b"x-toolgate-organization": context.organization_id.encode(),
            b"x-toolgate-environment": context.environment.encode(),
            **rate.headers(),
        },
    )
    if context.ip_allow_list is not None and not ip_allowlist.is_allowed(context.ip_allow_list, peer):
        await gateway.allowlist_alerts.record(context, peer)
        raise ip_allowlist.address_forbidden(peer)
    if rate.exceeded:
        raise rate.refusal()
    return KeyCaller(digest, context, monotonic())


def _sent_key(scope: Scope) -> str:
    # Strip only spaces and tabs: `strip()` would also remove a Latin-1 no-break space, which is part of the value.
    key = header_of(scope, b"x-api-key")
    if key is not None:
        return key.strip(" \t")
    scheme, _, token = (header_of(scope, b"authorization") or "").partition(" ")
    token = token.strip(" \t")
    # A bearer token that is not an API key is a session token of a user. Ignore it here.
    return token if scheme.lower() == "bearer" and may_be_key(token) else ""


async def load_context(gateway: Gateway, caller: KeyCaller, agent_id: str, action: str = "") -> AuthContext:
    """Return the current authentication context, with the agent and the permission that the request body names.

    Raises:
        ApiError: 401 if the key was revoked, or the organization deactivated, after the request was authenticated.
    """
    found = await gateway.auth_store.load(caller.key_digest, agent_id, action, epoch=caller.epoch)
    return require_current(found)


@from_headers
async def key_caller(request: Request, gateway: GatewayDep) -> KeyCaller:
    """Authenticate a request by its API key, and count the request against the rate limit for reads."""
    return await authenticate_api_key(request.scope, gateway, "reads")


AnyKey = Annotated[KeyCaller, Depends(key_caller)]


# `async` although the function awaits nothing: FastAPI would run a synchronous dependency in a thread, which is slower.
async def enforcing_key(caller: AnyKey) -> KeyCaller:
    """Return the caller if the API key is not advisory.

    Raises:
        ApiError: 403 if the API key is advisory.
    """
    refuse_advisory(caller)
    return caller


EnforcingKey = Annotated[KeyCaller, Depends(enforcing_key)]


def refuse_advisory(caller: KeyCaller) -> None:
    """Raise an error if the API key of a request that changes something is advisory.

    Raises:
        ApiError: 403 if the API key is advisory.
    """
    if caller.context.is_advisory:
        raise ApiError(
            403,
            "This API key is advisory: it can only make dry runs and AuthZEN requests, which change nothing; use "
            "another key",
        )


_NOT_FILTERS = ("limit", "offset", "cursor")


# `async` although the function awaits nothing: FastAPI would run a synchronous dependency in a thread, which is slower.
async def _page(
    request: Request,
    caller: AnyCaller,
    gateway: GatewayDep,
    limit: PageSize = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> Page:
    return _requested_page(request, caller.organization_id, gateway.vault.cursor_keys, limit, offset, cursor)


async def _whole_or_page(
    request: Request,
    caller: AnyCaller,
    gateway: GatewayDep,
    limit: Annotated[
        PageSize | None,
        Query(
            description="Maximum number of items on the page, 1-100. Without this parameter, the response contains "
            "the whole list."
        ),
    ] = None,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> Page:
    return _requested_page(request, caller.organization_id, gateway.vault.cursor_keys, limit, offset, cursor)


#: the requested page; its size is `limit`, which is 50 by default and at most 100
PageDep: TypeAlias = Annotated[Page, Depends(_page)]
#: the requested page if the request has a `limit`, otherwise the whole list
WholeOrPageDep: TypeAlias = Annotated[Page, Depends(_whole_or_page)]


def _requested_page(
    request: Request, organization_id: str, keys: Keys, limit: int | None, offset: int, cursor: str | None
) -> Page:
    filters = [item for item in request.query_params.multi_items() if item[0] not in _NOT_FILTERS]
    return page_behind(cursor, request.url.path, filters, organization_id, keys, limit=limit, offset=offset)
