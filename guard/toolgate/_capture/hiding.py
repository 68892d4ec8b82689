"""Digests that stand in for what is not shown: they bind the value without telling it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from toolgate._capture.jsontext import Json, dumps

__all__ = ["Hider", "RecordingHider"]

_INFO: Final = b"toolgate capture v1"


class Hider:
    """Makes keyed digests: equal values give equal digests in every process with the same API key.

    Args:
        api_key: The key is derived from it by HKDF-SHA256 (RFC 5869, no salt), so that guessing short
            secrets from a log needs the API key (decisions §13).
    """

    def __init__(self, api_key: str) -> None:
        extracted = hmac.digest(bytes(32), api_key.encode(), hashlib.sha256)
        self._key = hmac.digest(extracted, _INFO + b"\x01", hashlib.sha256)

    def text(self, value: str) -> dict[str, Json]:
        """The digest of a string."""
        # Lone surrogates are legal in a Python string and must not stop a call.
        return self._digest(b"text", value.encode("utf-8", "surrogatepass"))

    def binary(self, value: bytes) -> dict[str, Json]:
        """The digest of bytes."""
        return self._digest(b"bytes", value)

    def json(self, value: Json) -> dict[str, Json]:
        """The digest of a JSON-safe value; a string's is that of `text`."""
        if isinstance(value, str):
            return self.text(value)
        return self._digest(b"json", dumps(value, canonical=True).encode("utf-8", "surrogatepass"))

    def node(self, digest: bytes, size: int) -> dict[str, Json]:
        """The digest of what a `TreeDigest` made of a value."""
        return {"$digest": self._digest(b"tree", digest)["$digest"], "bytes": size}

    def once(self) -> str:
        """A digest that never comes again: nothing approved with it can be let through."""
        return f"once:{self.unrepeatable().hex()}"

    def unrepeatable(self) -> bytes:
        """Return 32 bytes that no other value gets."""
        return secrets.token_bytes(32)

    def recording(self, issued: list[bytes] | None) -> RecordingHider:
        """Return a digester with the same key that keeps, or repeats, its unrepeatable bytes."""
        return RecordingHider(self._key, issued)

    def label(self, value: str) -> str:
        """The digest of a string in the form of a name, which no name of the caller's can have."""
        return f"${self.text(value)['$digest']}"

    def _digest(self, kind: bytes, value: bytes) -> dict[str, Json]:
        # The kind keeps b"1", "1" and 1 apart.
        digest = hmac.new(self._key, kind + b"\x00" + value, hashlib.sha256).hexdigest()
        return {"$digest": f"hmac-sha256:{digest}", "bytes": len(value)}


class RecordingHider(Hider):
    """Digester that keeps the unrepeatable bytes it issued, so that the same values get the same ones again.

    Args:
        key: The derived key.
        repeated: Bytes to issue again, in their order; None issues new ones.

    Attributes:
        issued: What `unrepeatable` returned, in order.
    """

    def __init__(self, key: bytes, repeated: list[bytes] | None) -> None:
        self._key = key
        self._repeated = list(reversed(repeated or ()))
        self.issued: list[bytes] = []

    def unrepeatable(self) -> bytes:
        """Return the next repeated bytes, or new ones."""
        digest = self._repeated.pop() if self._repeated else super().unrepeatable()
        self.issued.append(digest)
        return digest
