"""Everything derived from the gateway's secret, one HKDF label per purpose (decisions §9)."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_VERSION = b"\x01"
_NONCE = 12


class Vault:
    """Seals secrets at rest and derives the keys that sign tokens, page cursors and forms.

    Args:
        secret: the gateway's; it signs and seals.
        former: secrets it had before; they only open what they sealed.
    """

    def __init__(self, secret: bytes, *former: bytes) -> None:
        self.token_key = _derive(secret, b"toolgate token signing")
        self.cursor_key = _derive(secret, b"toolgate page cursors")
        self.login_key = _derive(secret, b"toolgate failed logins")
        self.form_key = _derive(secret, b"toolgate console forms")
        self._aead = _sealing(secret)
        self._former = [_sealing(one) for one in former]

    def seal(self, plain: str, *, table: str, row: str, organization: str) -> bytes:
        """Encrypt with AES-256-GCM, bound to the place where it is kept; a key version stands in front."""
        nonce = os.urandom(_NONCE)
        sealed = self._aead.encrypt(nonce, plain.encode(), _place(table, row, organization))
        return _VERSION + nonce + sealed

    def open(self, sealed: bytes, *, table: str, row: str, organization: str) -> str | None:
        """Decrypt what `seal` made; None when no secret known here sealed it for that place."""
        place = _place(table, row, organization)
        opened = (_opened(aead, sealed, place) for aead in (self._aead, *self._former))
        return next((plain for plain in opened if plain is not None), None)

    def resealed(self, sealed: bytes, *, table: str, row: str, organization: str) -> bytes | None:
        """Return the same under the present secret, untouched if it is; None when no secret known here opens it."""
        if _opened(self._aead, sealed, _place(table, row, organization)) is not None:
            return sealed
        plain = self.open(sealed, table=table, row=row, organization=organization)
        return None if plain is None else self.seal(plain, table=table, row=row, organization=organization)


def _sealing(secret: bytes) -> AESGCM:
    return AESGCM(_derive(secret, b"toolgate secrets at rest"))


def _opened(aead: AESGCM, sealed: bytes, place: bytes) -> str | None:
    if sealed[:1] != _VERSION or len(sealed) <= len(_VERSION) + _NONCE:
        return None
    nonce, body = sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
    try:
        return aead.decrypt(nonce, body, place).decode()
    except InvalidTag:
        return None


def _place(table: str, row: str, organization: str) -> bytes:
    return f"{table}/{row}/{organization}".encode()


def _derive(secret: bytes, label: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=label).derive(secret)
