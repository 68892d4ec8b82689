"""Tokens that let somebody in once: 256 bits, kept as their hash alone (decisions §9)."""

import hashlib
import secrets
from urllib.parse import quote

BYTES = 32

#: pages of the console that take a token
INVITATION_PAGE = "/console/invitation"
RESET_PAGE = "/console/password-reset"


def mint() -> str:
    """Return a new token."""
    return secrets.token_urlsafe(BYTES)


def token_hash(token: str) -> str:
    """Return what a token is kept as and found by."""
    return hashlib.sha256(token.encode()).hexdigest()


def link(public_url: str, page: str, token: str) -> str:
    """Return a link with the token in the fragment, which no browser sends and no server logs."""
    return f"{public_url.rstrip('/')}{page}#token={quote(token)}"
