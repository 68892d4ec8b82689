"""Everything derived from the gateway's secret, one HKDF label per purpose (decisions §9)."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_VERSION = b"\x01"
_NONCE = 12


class Vault:
    """Seals secrets at rest and derives the keys that sign tokens and page cursors."""

    def __init__(self, secret: bytes) -> None:
        self.token_key = _derive(secret, b"toolgate token signing")
        self.cursor_key = _derive(secret, b"toolgate page cursors")
        self.login_key = _derive(secret, b"toolgate failed logins")
        self._aead = AESGCM(_derive(secret, b"toolgate secrets at rest"))

    def seal(self, plain: str, *, table: str, row: str, organization: str) -> bytes:
        """Encrypt with AES-256-GCM, bound to the place where it is kept; a key version stands in front."""
        nonce = os.urandom(_NONCE)
        sealed = self._aead.encrypt(nonce, plain.encode(), _place(table, row, organization))
        return _VERSION + nonce + sealed

    def open(self, sealed: bytes, *, table: str, row: str, organization: str) -> str | None:
        """Decrypt what `seal` made; None when this secret did not seal it for that place."""
        if sealed[:1] != _VERSION or len(sealed) <= len(_VERSION) + _NONCE:
            return None
        nonce, body = sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
        try:
            return self._aead.decrypt(nonce, body, _place(table, row, organization)).decode()
        except InvalidTag:
            return None


def _place(table: str, row: str, organization: str) -> bytes:
    return f"{table}/{row}/{organization}".encode()


def _derive(secret: bytes, label: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=label).derive(secret)
