"""Keyed digests that stand for values that are not shown: they bind a value without revealing it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from toolgate._capture.jsontext import Json, dumps
from toolgate._capture.serializer import Frozen, plain

__all__ = ["Fingerprinter"]

_INFO: Final = b"toolgate capture v1"


class Fingerprinter:
    """Makes keyed digests: equal values have equal digests in every process with the same API key.

    Args:
        api_key: The digests' key is derived from it by HKDF-SHA256 (RFC 5869, no salt), so that a short secret
            cannot be guessed from a log without the API key.
    """

    def __init__(self, api_key: str) -> None:
        extracted = hmac.digest(bytes(32), api_key.encode(), hashlib.sha256)
        self._key = hmac.digest(extracted, _INFO + b"\x01", hashlib.sha256)

    def text(self, value: str) -> dict[str, Json]:
        """Return the digest of a text."""
        # Lone surrogates are legal in a Python string and must not stop a call.
        return self._digest(b"text", value.encode("utf-8", "surrogatepass"))

    def binary(self, value: bytes) -> dict[str, Json]:
        """Return the digest of bytes."""
        return self._digest(b"bytes", value)

    def json(self, value: Json) -> dict[str, Json]:
        """Return the digest of JSON; that of a text is the digest `text` returns."""
        if isinstance(value, str):
            return self.text(value)
        return self._digest(b"json", dumps(value, canonical=True).encode("utf-8", "surrogatepass"))

    def frozen(self, value: Frozen) -> dict[str, Json]:
        """Return the digest of a frozen value."""
        return self.binary(value) if isinstance(value, bytes) else self.json(plain(value))

    def label(self, value: str) -> str:
        """Return the digest of a name, as a name that no argument can have."""
        return f"${self.text(value)['$digest']}"

    def _digest(self, kind: bytes, value: bytes) -> dict[str, Json]:
        # The kind keeps b"1", "1" and 1 apart.
        digest = hmac.new(self._key, kind + b"\x00" + value, hashlib.sha256).hexdigest()
        return {"$digest": f"hmac-sha256:{digest}", "bytes": len(value)}
