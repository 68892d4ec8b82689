"""Signed values of access requests (compact JWS with EdDSA), and the JWK Set with the public keys.

The keys are derived from the secret of the gateway. All gateways with the same secret therefore have the same keys, and
values that were signed before a rotation of the secret are accepted as long as the former secret is set.
"""

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from toolgate_service.core import strict_json
from toolgate_service.core.crypto import Keys
from toolgate_service.core.strict_json import Json

ALGORITHM = "EdDSA"
_REQUIRED = ["iss", "aud", "iat", "exp"]


class InvalidToken(Exception):
    """Error for a value that the gateway did not sign, or that is not intended for the gateway."""


class Signer:
    """Signs values with the first key, and accepts values that any of the keys signed.

    Args:
        keys: Seeds of the keys; the first one signs.
        issuer: URL of the gateway, which is the issuer and the recipient of the values.
    """

    def __init__(self, keys: Keys, issuer: str) -> None:
        self._issuer = issuer
        self._private = Ed25519PrivateKey.from_private_bytes(keys[0])
        public = [Ed25519PrivateKey.from_private_bytes(key).public_key() for key in keys]
        self._public = {_key_id(key.public_bytes_raw()): key for key in public}
        self._id = next(iter(self._public))

    def sign(self, claims: Mapping[str, Json], *, issued: datetime, expires: datetime) -> str:
        """Return a compact JWS with these claims, and with `iss`, `aud`, `iat` and `exp`."""
        payload = dict(claims) | {"iss": self._issuer, "aud": self._issuer, "iat": issued, "exp": expires}
        return jwt.encode(payload, self._private, algorithm=ALGORITHM, headers={"kid": self._id})

    def verify(self, token: str) -> Mapping[str, Json]:
        """Return the claims of a value that `sign` returned.

        The expiry is part of the claims, and the caller compares it with the current time.

        Raises:
            InvalidToken: The signature, the issuer or the recipient is wrong, or a claim is missing.
        """
        try:
            key = self._public.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise InvalidToken("The value is signed with a key that this gateway does not have")
            claims: Mapping[str, Json] = jwt.decode(
                token,
                key,
                algorithms=[ALGORITHM],
                issuer=self._issuer,
                audience=self._issuer,
                options={"require": _REQUIRED, "verify_exp": False, "verify_iat": False},
            )
        except (jwt.InvalidTokenError, RecursionError, ValueError) as error:
            raise InvalidToken(str(error)) from None
        return claims

    def key_set(self) -> dict[str, list[dict[str, str]]]:
        """Return the JWK Set with the public keys."""
        return {
            "keys": [
                {**_public_jwk(key.public_bytes_raw()), "kid": key_id, "use": "sig", "alg": ALGORITHM}
                for key_id, key in self._public.items()
            ]
        }


def _public_jwk(raw: bytes) -> dict[str, str]:
    return {"crv": "Ed25519", "kty": "OKP", "x": _base64url(raw)}


def _key_id(raw: bytes) -> str:
    """Return the JWK thumbprint (RFC 7638) of a public key."""
    return _base64url(hashlib.sha256(strict_json.dumps(_public_jwk(raw), sort_keys=True).encode()).digest())


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
