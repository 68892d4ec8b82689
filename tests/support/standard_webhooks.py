"""Verifying a delivery as the Standard Webhooks specification says, by `hmac` alone: not by the library that signed."""

import base64
import hashlib
import hmac
from collections.abc import Mapping


def signatures_of(headers: Mapping[str, str]) -> list[str]:
    """Return the signatures of version 1."""
    parts = [part.partition(",") for part in headers["webhook-signature"].split(" ")]
    assert all(version == "v1" and signature for version, _, signature in parts), parts
    return [signature for _, _, signature in parts]


def expected(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature that a secret makes."""
    assert secret.startswith("whsec_")
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Say whether one of a delivery's signatures is a secret's."""
    wanted = expected(secret, headers["webhook-id"], headers["webhook-timestamp"], body)
    return any(hmac.compare_digest(wanted, signature) for signature in signatures_of(headers))
