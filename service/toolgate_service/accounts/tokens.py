"""The tokens of the management surface: JWT, HS256, seven days (spec §5, decisions §9)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import jwt

ALGORITHM = "HS256"
ISSUER = "toolgate"
AUDIENCE = "toolgate-management"
LIFETIME = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a valid token says: who, in which session, at which version of the user."""

    user_id: str
    session_id: str
    version: int


def issue(key: bytes, claims: Claims, *, scope: str, issued_at: datetime) -> str:
    """Write a token."""
    payload = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": claims.user_id,
        "iat": issued_at,
        "exp": issued_at + LIFETIME,
        "jti": claims.session_id,
        "ver": claims.version,
        "scope": scope,
    }
    return jwt.encode(payload, key, algorithm=ALGORITHM)


def read(keys: Iterable[bytes], token: str) -> Claims | None:
    """Read a token that one of our keys signed; None when it is malformed, another's, or expired."""
    found = (_read(key, token) for key in keys)
    return next((claims for claims in found if claims is not None), None)


def _read(key: bytes, token: str) -> Claims | None:
    try:
        payload = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            issuer=ISSUER,
            audience=AUDIENCE,
            # When it began was the database's clock to say, which may be ahead of this machine's (decisions §12).
            options={"require": ["exp", "iat", "sub", "jti", "ver", "scope"], "verify_iat": False},
        )
    except (jwt.InvalidTokenError, RecursionError):
        # RecursionError: a header of nothing but brackets.
        return None
    match payload:
        case {"sub": str(user_id), "jti": str(session_id), "ver": int(version)}:
            return Claims(user_id, session_id, version)
    return None
