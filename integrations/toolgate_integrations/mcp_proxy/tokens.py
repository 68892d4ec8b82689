"""Validation of the access tokens of clients that connect to the proxy over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio.to_thread
import jwt
from mcp.server.auth.provider import AccessToken

from toolgate import ConfigurationError

__all__ = ["JwtVerifier", "load_keys"]

logger = logging.getLogger("toolgate")
#: Accepted signature algorithms. All are asymmetric: with a symmetric one, the published keys could sign tokens.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_MAX_TOKEN: Final = 16 * 1024
_MAX_FILE: Final = 1024 * 1024
# Difference between the clocks of the issuer and the proxy, in seconds, for the time of issue.
_LEEWAY: Final = 10
_FETCH_TIMEOUT: Final = 5.0

#: Function that returns the key with a key id, or raises `jwt.PyJWTError`. It may send a request.
KeySource = Callable[[str], jwt.PyJWK]


def load_keys(place: str) -> KeySource:
    """Return the source of the issuer's public keys.

    Args:
        place: Address of the issuer's JSON Web Key Set, or path of a file that contains it.

    Raises:
        ConfigurationError: The address is not an HTTPS URL, or the file is not a key set.
    """
    if "://" not in place:
        return _file_keys(Path(place))
    if not _is_safe(place):
        raise ConfigurationError(
            f"the address of the key set is {place!r}; use https, or http to this machine, without a user or a "
            "password in it"
        )
    client = jwt.PyJWKClient(place, timeout=_FETCH_TIMEOUT)
    return client.get_signing_key


class JwtVerifier:
    """Verifier of access tokens that are JSON Web Tokens of one issuer for one audience.

    Args:
        issuer: Expected claim `iss`.
        audience: Expected claim `aud`, or a member of it if the claim is a list.
        keys: Source of the issuer's public keys.
    """

    def __init__(self, issuer: str, audience: str, keys: KeySource) -> None:
        self._issuer, self._audience, self._keys = issuer, audience, keys

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token with its claims, or None if it is not valid.

        A token is valid if its signature, issuer, audience and times are valid, and it has the claims `exp` and `sub`.
        """
        try:
            # The keys may be fetched, which blocks the thread.
            claims = await anyio.to_thread.run_sync(self._claims_of, token)
        except jwt.PyJWTError as error:
            # The messages of the library contain neither the token nor its claims.
            logger.warning("an access token was rejected: %s", error)
            return None
        return AccessToken(
            token=token,
            client_id=_text_of(claims, "client_id") or _text_of(claims, "azp"),
            scopes=_text_of(claims, "scope").split(),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=claims["sub"],
            claims=claims,
        )

    def _claims_of(self, token: str) -> dict[str, Any]:
        if len(token) > _MAX_TOKEN:
            raise jwt.InvalidTokenError(f"the token has {len(token)} characters; the maximum is {_MAX_TOKEN}")
        header = jwt.get_unverified_header(token)
        key_id = header.get("kid")
        if header.get("alg") not in ALGORITHMS or not isinstance(key_id, str):
            raise jwt.InvalidTokenError("the token has no asymmetric signature with a key id")
        key = self._keys(key_id)
        if key.algorithm_name not in ALGORITHMS:
            raise jwt.InvalidTokenError("the key of the token is not asymmetric")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            issuer=self._issuer,
            audience=self._audience,
            leeway=_LEEWAY,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        if not claims["sub"]:
            raise jwt.InvalidTokenError("the claim sub is empty")
        return claims


def _text_of(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name)
    return value if isinstance(value, str) else ""


def _file_keys(path: Path) -> KeySource:
    try:
        content = path.read_bytes()
        if len(content) > _MAX_FILE:
            raise ConfigurationError(f"the key set {str(path)!r} is larger than {_MAX_FILE} bytes")
        keys = {key.key_id: key for key in jwt.PyJWKSet.from_json(content.decode()).keys if key.key_id}
    except (OSError, ValueError, TypeError, AttributeError, jwt.PyJWTError) as error:
        raise ConfigurationError(f"the key set {str(path)!r} cannot be used: {error}") from error
    if not keys:
        raise ConfigurationError(f"the key set {str(path)!r} contains no key with a key id (kid)")

    def find(key_id: str) -> jwt.PyJWK:
        if key_id not in keys:
            raise jwt.InvalidTokenError("the key of the token is not in the key set")
        return keys[key_id]

    return find


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.username is not None or not parts.hostname:
            return False
        return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether a host name is this machine's."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
