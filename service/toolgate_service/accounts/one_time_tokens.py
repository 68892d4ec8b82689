"""One-time tokens for links in e-mails. A token has 256 random bits; the database stores only its hash."""

import hashlib
import secrets
from urllib.parse import quote

TOKEN_BYTES = 32

#: paths of the console pages that read a token from the link
INVITATION_PAGE = "/console/invitation"
RESET_PAGE = "/console/password-reset"


def create_token() -> str:
    """Return a new random token."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(token: str) -> str:
    """Return the SHA-256 hash that the database stores instead of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def build_link(public_url: str, page: str, token: str) -> str:
    """Return a link with the token in the URL fragment. Browsers do not send the fragment, so no server logs it."""
    return f"{public_url.rstrip('/')}{page}#token={quote(token)}"
