"""Keyed digests that replace hidden values in a context, so that an approval covers a value without revealing it."""

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
        api_key: API key, from which the key of the digests is derived by HKDF-SHA256 (RFC 5869, no salt). The key
            prevents guessing: a reader of a log, who does not have it, cannot compute the digests of possible secrets
            and compare them with the digests in the log.
    """

    def __init__(self, api_key: str) -> None:
        extracted = hmac.digest(bytes(32), api_key.encode(), hashlib.sha256)
        self._key = hmac.digest(extracted, _INFO + b"\x01", hashlib.sha256)

    def text(self, value: str) -> dict[str, Json]:
        """Return the digest of a text."""
        # A Python string may contain lone surrogates, which UTF-8 rejects by default; they must not make a call fail.
        return self._digest(b"text", value.encode("utf-8", "surrogatepass"))

    def binary(self, value: bytes) -> dict[str, Json]:
        """Return the digest of bytes."""
        return self._digest(b"bytes", value)

    def json(self, value: Json) -> dict[str, Json]:
        """Return the digest of a JSON value; for a string it is the same as that of `text`."""
        if isinstance(value, str):
            return self.text(value)
        return self._digest(b"json", dumps(value, canonical=True).encode("utf-8", "surrogatepass"))

    def frozen(self, value: Frozen) -> dict[str, Json]:
        """Return the digest of a value that a `Freezer` returned."""
        return self.binary(value) if isinstance(value, bytes) else self.json(plain(value))

    def label(self, value: str) -> str:
        """Return a digest that replaces a name in a context; it begins with one `$`, unlike names of arguments."""
        return f"${self.text(value)['$digest']}"

    def _digest(self, kind: bytes, value: bytes) -> dict[str, Json]:
        # The kind is part of the digest, so that the digests of b"1", "1" and 1 differ.
        digest = hmac.new(self._key, kind + b"\x00" + value, hashlib.sha256).hexdigest()
        return {"$digest": f"hmac-sha256:{digest}", "bytes": len(value)}
