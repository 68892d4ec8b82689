"""Slack's signature of what it sends: HMAC-SHA256 over version, timestamp and the body as it came."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

SIGNATURE = "x-slack-signature"
TIMESTAMP = "x-slack-request-timestamp"
#: how far the timestamp may be from our clock, either way
WINDOW = timedelta(minutes=5)

_SECONDS = re.compile(r"[0-9]{1,12}")
_SIGNED = re.compile(r"v0=[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Signed:
    """A request as it came, with what it says of its signature.

    Attributes:
        body: byte for byte.
        seconds: the timestamp header; empty where it is none.
        signature: likewise.
    """

    body: bytes
    seconds: str
    signature: str

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> Self:
        """Read a request's headers."""
        seconds, signature = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
        return cls(
            body,
            seconds if _SECONDS.fullmatch(seconds) else "",
            signature if _SIGNED.fullmatch(signature) else "",
        )

    @property
    def is_complete(self) -> bool:
        """Whether the headers have a timestamp and a signature at all."""
        return bool(self.seconds and self.signature)

    def is_by(self, secret: str, moment: datetime) -> bool:
        """Say whether whoever knows a secret signed it within five minutes of a moment; as much work for a no."""
        right = hmac.compare_digest(sign(secret, self.seconds, self.body), self.signature)
        told = timedelta(seconds=int(self.seconds or 0))
        fresh = abs(moment - datetime(1970, 1, 1, tzinfo=UTC) - told) <= WINDOW
        return right and fresh


def sign(secret: str, seconds: str, body: bytes) -> str:
    """Return the signature of a body at a moment."""
    return "v0=" + hmac.digest(secret.encode(), f"v0:{seconds}:".encode() + body, "sha256").hex()
