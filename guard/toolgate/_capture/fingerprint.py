"""Keyed digests that replace hidden arguments in checks: an approval covers the value, but does not reveal it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from toolgate._capture.jsontext import Json, dumps
from toolgate._capture.serializer import Frozen, plain

__all__ = ["Fingerprinter"]

_INFO: Final = b"toolgate capture v1"


class Fingerprinter:
    """Computes keyed digests; equal values have equal digests in all processes that use the same API key.

    Args:
        api_key: API key. The key of the digests is derived from it by HKDF-SHA256 (RFC 5869, no salt). A reader of the
            log does not have this key, and so cannot find a secret by comparing digests of guessed values with the
            digests in the log.
    """

    def __init__(self, api_key: str) -> None:
        extracted = hmac.digest(bytes(32), api_key.encode(), hashlib.sha256)
        self._key = hmac.digest(extracted, _INFO + b"\x01", hashlib.sha256)

    def text(self, value: str) -> dict[str, Json]:
        """Return the digest of a text."""
        # Without "surrogatepass", encoding a string with lone surrogates would raise an error.
        return self._digest(b"text", value.encode("utf-8", "surrogatepass"))

    def binary(self, value: bytes) -> dict[str, Json]:
        """Return the digest of bytes."""
        return self._digest(b"bytes", value)

    def json(self, value: Json) -> dict[str, Json]:
        """Return the digest of a JSON value. For a string, `text` returns the same digest."""
        if isinstance(value, str):
            return self.text(value)
        return self._digest(b"json", dumps(value, canonical=True).encode("utf-8", "surrogatepass"))

    def frozen(self, value: Frozen) -> dict[str, Json]:
        """Return the digest of an argument that `Freezer` copied."""
        return self.binary(value) if isinstance(value, bytes) else self.json(plain(value))

    def label(self, value: str) -> str:
        """Return a digest that replaces a name. It begins with a single `$`, unlike all names of arguments."""
        return f"${self.text(value)['$digest']}"

    def _digest(self, kind: bytes, value: bytes) -> dict[str, Json]:
        # The kind is part of the digest, so that the digests of b"1", "1" and 1 differ.
        digest = hmac.new(self._key, kind + b"\x00" + value, hashlib.sha256).hexdigest()
        return {"$digest": f"hmac-sha256:{digest}", "bytes": len(value)}
