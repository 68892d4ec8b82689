"""Who asks on the management surface, and what their role lets them do (decisions §2, §9).

The token only names a session; user, role, organization and version are read from the database at every request.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import tokens
from toolgate_service.accounts.models import ADMIN, CLI, FULL, VIEWER, User
from toolgate_service.accounts.sign_in import sign_in_of
from toolgate_service.errors import ApiError, bad_credentials
from toolgate_service.gateway import Gateway, GatewayDep
from toolgate_service.hotpath.http import add_headers
from toolgate_service.reporting.context import ORGANIZATION
from toolgate_service.web.bodies import from_headers


@dataclass(frozen=True, slots=True)
class Person:
    """Whoever proved by a link, and not by a token, which user they are."""

    user_id: str
    organization_id: str
    ip_address: str | None


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated user."""

    user_id: str
    organization_id: str
    session_id: str
    version: int
    role: str
    scope: str
    plan: str
    organization_is_active: bool
    ip_address: str | None
    #: through what, where not through the API: `console` or `slack`
    via: str | None = None
    #: what proved who it is, where that was not the session's token
    proof: Mapping[str, str] | None = None

    @property
    def credential(self) -> Mapping[str, str]:
        """What proved who it is, as decisions store it; ids alone, never a secret."""
        if self.proof is not None:
            return {"kind": self.via or "", **self.proof}
        return {"kind": self.via or "token", "session_id": self.session_id, "scope": self.scope}

    @property
    def is_admin(self) -> bool:
        """Whether the user administers the organization."""
        return self.role == ADMIN

    @property
    def sees_keys(self) -> bool:
        """Whether API keys are shown whole: to admins, but never to a ``cli`` token."""
        return self.is_admin and self.scope == FULL


@from_headers
async def authenticated(request: Request, gateway: GatewayDep) -> Caller:
    """Return the caller, from the headers alone; count the request.

    Raises:
        ApiError: 401, the same for a missing, malformed, expired and revoked token; 429 beyond the rate.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return await caller_of(request, gateway, token.strip(" \t") if scheme.lower() == "bearer" else "")


async def caller_of(request: Request, gateway: Gateway, token: str) -> Caller:
    """Return whom a token stands for; count the request.

    Raises:
        ApiError: as for `authenticated`.
    """
    claims = tokens.read(gateway.vault.token_keys, token)
    found = None if claims is None else await gateway.reader.sign_in(claims)
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


def peer(request: Request) -> str | None:
    """Return the address that a request came from."""
    return request.client.host if request.client else None


async def still(session: AsyncSession, caller: Caller, *, reads: bool = False) -> None:
    """Look again who asks, inside a transaction that holds the organization's turn.

    Between the token's look and this turn the caller may have been removed, demoted or logged out, or the
    organization switched off: that wins.

    Args:
        session: the transaction.
        caller: as the token's look found it.
        reads: changes nothing, which an organization that was switched off may do.

    Raises:
        ApiError: 401, the token has stopped working meanwhile; 403, the organization was switched off.
    """
    found = await sign_in_of(session, tokens.Claims(caller.user_id, caller.session_id, caller.version))
    if found is None:
        raise bad_credentials()
    if caller.organization_is_active and not (found.organization_is_active or reads):
        raise _not_active()


async def own_row(session: AsyncSession, caller: Caller) -> User:
    """Return the caller's row, once it was seen that they may `still` act.

    Raises:
        ApiError: as for `still`.
    """
    await still(session, caller)
    return await session.get_one(User, caller.user_id)


@asynccontextmanager
async def acting(gateway: Gateway, caller: Caller, *, reads: bool = False) -> AsyncIterator[AsyncSession]:
    """Open a write transaction with the turn of the caller's organization, in which the caller may `still` act.

    Args:
        gateway: the gateway.
        caller: who acts.
        reads: only reads something whose showing is audited.

    Raises:
        ApiError: as for `still`.
    """
    async with gateway.database.writing(caller.organization_id) as session:
        await still(session, caller, reads=reads)
        yield session


#: asked within a transaction before anything is changed, and may refuse
First: TypeAlias = Callable[[AsyncSession], Awaitable[None]]


async def nothing_first(_session: AsyncSession) -> None:
    """Refuse nothing."""


def _not_active() -> ApiError:
    return ApiError(403, "Organization is not active")


async def _count(request: Request, gateway: Gateway, caller: Caller) -> None:
    limit = gateway.settings.management_requests_per_minute
    rate = await gateway.rates.count(caller.organization_id, f"user/{caller.user_id}", limit)
    add_headers(request.scope, rate.headers())
    if rate.exceeded:
        raise rate.refusal()


AnyCaller = Annotated[Caller, Depends(authenticated)]


# Async although nothing is awaited: FastAPI sends other dependencies through a thread each.
async def changing(caller: AnyCaller) -> Caller:
    """Let through whoever may change anything: no viewer, and nobody in an inactive organization.

    Raises:
        ApiError: 403.
    """
    if not caller.organization_is_active:
        raise _not_active()
    if caller.role == VIEWER:
        raise ApiError(403, "Your role is 'viewer', which may only read; ask an admin")
    return caller


async def full_scope(caller: Annotated[Caller, Depends(changing)]) -> Caller:
    """Let through whoever logged in fully: a ``cli`` token may not decide, show keys or change permissions.

    Raises:
        ApiError: 403.
    """
    if caller.scope == CLI:
        raise ApiError(403, "This token's scope is 'cli', which may not do that; log in with scope 'full'")
    return caller


async def admin(caller: Annotated[Caller, Depends(full_scope)]) -> Caller:
    """Let through admins.

    Raises:
        ApiError: 403.
    """
    if not caller.is_admin:
        raise ApiError(403, f"Your role is {caller.role!r}; only an admin may do that")
    return caller


ChangingCaller = Annotated[Caller, Depends(changing)]
FullCaller = Annotated[Caller, Depends(full_scope)]
AdminCaller = Annotated[Caller, Depends(admin)]
