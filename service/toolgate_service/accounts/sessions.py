"""Login sessions of the management API: session tokens, the authenticated caller, and the caller's transactions.

A token only identifies a session. For every request, the gateway reads the user's role, organization and version from
the database.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import jwt
from sqlalchemy import bindparam, column, text
from sqlmodel import col, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import ADMIN, FULL, Session, User
from toolgate_service.accounts.schemas import TokenView, UserView
from toolgate_service.context import AppContext
from toolgate_service.core import strict_json
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError, bad_credentials
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now
from toolgate_service.db.models import Id, Timestamp

ALGORITHM = "HS256"
ISSUER = "toolgate"
AUDIENCE = "toolgate-management"
SESSION_LIFETIME = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """Claims of a valid session token: the ids of the user and the session, and `User.version` at the login."""

    user_id: str
    session_id: str
    version: int


def issue_token(key: bytes, claims: TokenClaims, *, scope: str, issued_at: datetime) -> str:
    """Return a session token: a signed JWT that is valid for seven days."""
    payload = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": claims.user_id,
        "iat": issued_at,
        "exp": issued_at + SESSION_LIFETIME,
        "jti": claims.session_id,
        "ver": claims.version,
        "scope": scope,
    }
    return jwt.encode(payload, key, algorithm=ALGORITHM)


def read_token(keys: Iterable[bytes], token: str) -> TokenClaims | None:
    """Return the claims of a session token.

    The result is None if the token is malformed or expired, or if none of the keys verifies its signature.
    """
    found = (_decode_token(key, token) for key in keys)
    return next((claims for claims in found if claims is not None), None)


def _decode_token(key: bytes, token: str) -> TokenClaims | None:
    try:
        payload = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            issuer=ISSUER,
            audience=AUDIENCE,
            # `iat` is not verified: it comes from the database's clock, which may be ahead of this machine's clock.
            options={"require": ["exp", "iat", "sub", "jti", "ver", "scope"], "verify_iat": False},
        )
    except (jwt.InvalidTokenError, RecursionError):
        # The JWT library raises a RecursionError if the token's header contains deeply nested brackets.
        return None
    match payload:
        case {"sub": str(user_id), "jti": str(session_id), "ver": int(version)}:
            return TokenClaims(user_id, session_id, version)
    return None


class ActiveSession(NamedTuple):
    """Database row of a valid session, with the role of its user and the plan and state of the organization."""

    organization_id: str
    role: str
    scope: str
    plan: str
    organization_is_active: int


#: query that authenticates a request of a user; it runs when the request arrives and, if the request changes data,
#: again in the transaction of the change, because the session may have ended in the meantime
ACTIVE_SESSION_SQL = """
SELECT u.organization_id, u.role, s.scope, o.plan, o.is_active
FROM users u
JOIN sessions s ON s.user_id = u.id AND s.organization_id = u.organization_id
JOIN organizations o ON o.id = u.organization_id
WHERE u.id = :user_id AND s.id = :session_id AND u.version = :version
  AND u.removed_at IS NULL AND s.revoked_at IS NULL AND s.expires_at > :now
"""

_ACTIVE_SESSION = (
    text(ACTIVE_SESSION_SQL)
    .bindparams(
        bindparam("user_id", type_=Id()),
        bindparam("session_id", type_=Id()),
        bindparam("now", type_=Timestamp()),
    )
    .columns(*(column(name, Id() if name == "organization_id" else None) for name in ActiveSession._fields))
)


async def find_active_session(session: AsyncSession, claims: TokenClaims) -> ActiveSession | None:
    """Return the session to which the claims of a token belong; None if the session is no longer valid."""
    values = {
        "user_id": claims.user_id,
        "session_id": claims.session_id,
        "version": claims.version,
        "now": now(session),
    }
    connection = await session.connection()
    rows = (await connection.execute(_ACTIVE_SESSION, values)).fetchall()
    return ActiveSession._make(rows[0]) if rows else None


@dataclass(frozen=True, slots=True)
class LinkUser:
    """User who opened an invitation or reset link.

    The one-time token in the link identifies the user; there is no session token.
    """

    user_id: str
    organization_id: str
    ip_address: str | None


#: description of a stored credential in the OpenAPI document
CREDENTIAL = (
    "How the user was authenticated. `type` is `token`, `console` or `slack`, and `kind` has the same value. The "
    "other members are ids, not secrets. Null if the caller is not an admin, and for votes from before version 0.2."
)


def read_credential(stored: str | None) -> dict[str, str] | None:
    """Return the stored credential of a decision as the API returns it; None if none was stored."""
    if stored is None:
        return None
    credential: Any = strict_json.loads_own(stored)
    # Credentials that earlier versions stored contain only `kind`, so add `type` with the same value.
    return {"type": credential["kind"], **credential}


@dataclass(frozen=True, slots=True)
class Caller:
    """Authenticated user who sends a request, with the user's role, session and organization."""

    user_id: str
    organization_id: str
    session_id: str
    version: int
    role: str
    scope: str
    plan: str
    organization_is_active: bool
    ip_address: str | None
    #: interface from which the request was sent: `console`, `slack`, or None for a direct API request
    via: str | None = None
    #: ids of the credential if it is not a session token, for example the id of a link to a Slack user
    proof: Mapping[str, str] | None = None

    @property
    def credential(self) -> Mapping[str, str]:
        """Description of the user's credential that is stored with a decision. It contains ids and no secrets."""
        via = self.via or ("token" if self.proof is None else "")
        ids = self.proof or {"session_id": self.session_id, "scope": self.scope}
        return {"type": via, "kind": via, **ids}

    @property
    def is_admin(self) -> bool:
        """True if the user is an admin of the organization."""
        return self.role == ADMIN

    @property
    def sees_keys(self) -> bool:
        """True if the user may see unmasked API keys.

        Only admins may see them, and only with a token of the scope ``full``.
        """
        return self.is_admin and self.scope == FULL


async def ensure_session_valid(session: AsyncSession, caller: Caller, *, reads: bool = False) -> None:
    """Raise an error if the caller's session is no longer valid. The transaction must hold the organization's lock.

    After the request was authenticated, another request may have removed, demoted or logged out the caller, or may have
    deactivated the organization. Set `reads` if the transaction writes nothing but audit events: a deactivation is then
    ignored.

    Raises:
        ApiError: 401 if the session is no longer valid; 403 if the organization was deactivated.
    """
    found = await find_active_session(session, TokenClaims(caller.user_id, caller.session_id, caller.version))
    if found is None:
        raise bad_credentials()
    if caller.organization_is_active and not (found.organization_is_active or reads):
        raise organization_inactive()


async def load_current_user(session: AsyncSession, caller: Caller) -> User:
    """Return the caller's row of the table `users`.

    Raises:
        ApiError: 401 if the session is no longer valid; 403 if the organization was deactivated.
    """
    await ensure_session_valid(session, caller)
    return await session.get_one(User, caller.user_id)


@asynccontextmanager
async def transaction_as(
    context: AppContext, caller: Caller, *, reads: bool = False
) -> AsyncIterator[AsyncSession]:
    """Open a write transaction that holds the lock of the caller's organization.

    Set `reads` if the transaction only reads data and writes audit events about it: a deactivation of the organization
    is then ignored.

    Raises:
        ApiError: 401 if the session is no longer valid; 403 if the organization was deactivated.
    """
    async with context.database.writing(caller.organization_id) as session:
        await ensure_session_valid(session, caller, reads=reads)
        yield session


#: additional check that a transaction runs before it changes anything; if it raises an `ApiError`, nothing is changed
Precondition: TypeAlias = Callable[[AsyncSession], Awaitable[None]]


async def no_precondition(_session: AsyncSession) -> None:
    """Accept every transaction. This function is the default `Precondition`."""


def organization_inactive() -> ApiError:
    """Return the 403 error for a request to change data of an inactive organization."""
    return ApiError(403, "Organization is not active")


async def open_session(
    session: AsyncSession, vault: Vault, user: User, scope: str, *, address: str | None = None
) -> TokenView:
    """Create a login session for the user and return its token.

    `address` is the hash of the client's network, see `LoginAttempt.address`.
    """
    moment = now(session)
    login = Session(
        id=new_id(),
        organization_id=user.organization_id,
        user_id=user.id,
        scope=scope,
        address=address,
        created_at=moment,
        expires_at=moment + SESSION_LIFETIME,
    )
    session.add(login)
    await session.flush()
    claims = TokenClaims(user.id, login.id, user.version)
    token = issue_token(vault.token_keys[0], claims, scope=scope, issued_at=moment)
    view = UserView(id=user.id, email=user.email, organization_id=user.organization_id)
    return TokenView(access_token=token, user=view)


async def end_session(session: AsyncSession, caller: Caller) -> None:
    """Revoke the caller's session, so that its token becomes invalid."""
    await session.exec(
        update(Session)
        .where(
            col(Session.organization_id) == caller.organization_id,
            col(Session.id) == caller.session_id,
            col(Session.revoked_at).is_(None),
        )
        .values(revoked_at=now(session))
    )
