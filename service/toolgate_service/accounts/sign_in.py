"""One statement that says all that a token stands for: user, session, organization.

The same text runs past the sessions, where a request is let in, and inside the transaction in which it changes something.
"""

from typing import NamedTuple

from sqlalchemy import bindparam, column, text
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.tokens import Claims
from toolgate_service.storage.database import now
from toolgate_service.storage.types import Id, Timestamp


class SignIn(NamedTuple):
    """The row behind a token that works."""

    organization_id: str
    role: str
    scope: str
    plan: str
    organization_is_active: int


SIGN_IN = """
SELECT u.organization_id, u.role, s.scope, o.plan, o.is_active
FROM users u
JOIN sessions s ON s.user_id = u.id AND s.organization_id = u.organization_id
JOIN organizations o ON o.id = u.organization_id
WHERE u.id = :user_id AND s.id = :session_id AND u.version = :version
  AND u.removed_at IS NULL AND s.revoked_at IS NULL AND s.expires_at > :now
"""

_TYPED = (
    text(SIGN_IN)
    .bindparams(
        bindparam("user_id", type_=Id()),
        bindparam("session_id", type_=Id()),
        bindparam("now", type_=Timestamp()),
    )
    .columns(*(column(name, Id() if name == "organization_id" else None) for name in SignIn._fields))
)


async def sign_in_of(session: AsyncSession, claims: Claims) -> SignIn | None:
    """Return what a token stands for inside a transaction; None for one that has stopped working."""
    values = {
        "user_id": claims.user_id,
        "session_id": claims.session_id,
        "version": claims.version,
        "now": now(session),
    }
    connection = await session.connection()
    rows = (await connection.execute(_TYPED, values)).fetchall()
    return SignIn._make(rows[0]) if rows else None
