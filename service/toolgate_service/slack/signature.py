"""Verification of Slack's request signatures: HMAC-SHA256 over version, timestamp and body."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

SIGNATURE = "x-slack-signature"
TIMESTAMP = "x-slack-request-timestamp"
#: maximum difference between the timestamp and the current time
WINDOW = timedelta(minutes=5)

_SECONDS = re.compile(r"[0-9]{1,12}")
_SIGNED = re.compile(r"v0=[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """Body of a request with the values of its timestamp and signature headers.

    Attributes:
        body: The request body.
        seconds: The timestamp in seconds since the epoch; empty if the header is missing or malformed.
        signature: The signature; empty if the header is missing or malformed.
    """

    body: bytes
    seconds: str
    signature: str

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> Self:
        """Return the signed request with these headers and this body."""
        seconds, signature = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
        return cls(
            body,
            seconds if _SECONDS.fullmatch(seconds) else "",
            signature if _SIGNED.fullmatch(signature) else "",
        )

    @property
    def has_signature(self) -> bool:
        """True if the headers contain a well-formed timestamp and a well-formed signature."""
        return bool(self.seconds and self.signature)

    def is_signed_with(self, secret: str, moment: datetime) -> bool:
        """Return whether the signature matches and its timestamp is within `WINDOW`; compare in constant time."""
        is_valid = hmac.compare_digest(sign(secret, self.seconds, self.body), self.signature)
        # A timedelta, because a datetime cannot represent timestamps after the year 9999.
        sent = timedelta(seconds=int(self.seconds or 0))
        return is_valid and abs(moment - datetime(1970, 1, 1, tzinfo=UTC) - sent) <= WINDOW


def sign(secret: str, seconds: str, body: bytes) -> str:
    """Return the signature of a body; `seconds` is the timestamp in seconds since the epoch."""
    return "v0=" + hmac.digest(secret.encode(), f"v0:{seconds}:".encode() + body, "sha256").hex()
