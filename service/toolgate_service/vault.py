"""Everything derived from the gateway's secret, one HKDF label per purpose (decisions §9)."""

import os
from collections.abc import Iterable
from typing import Self, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolgate_service.settings import Settings

_VERSION = b"\x01"
_NONCE = 12


#: keys of one purpose: the first signs, and what any of them has signed is believed
Keys: TypeAlias = tuple[bytes, ...]


class Vault:
    """Seals secrets at rest and derives the keys that sign tokens, page cursors and forms.

    Args:
        secret: the gateway's; it signs and seals.
        others: secrets that it had before, or will have; they only open what they sealed.
        believed: those whose signatures count as well.

    Attributes:
        token_keys: for tokens.
        cursor_keys: for page cursors.
        form_keys: for the console's forms.
        login_key: for what failed logins are counted under.
    """

    def __init__(self, secret: bytes, *others: bytes, believed: Iterable[bytes] = ()) -> None:
        signing = (secret, *believed)
        self.token_keys: Keys = tuple(_derive(one, b"toolgate token signing") for one in signing)
        self.cursor_keys: Keys = tuple(_derive(one, b"toolgate page cursors") for one in signing)
        self.form_keys: Keys = tuple(_derive(one, b"toolgate console forms") for one in signing)
        self.login_key = _derive(secret, b"toolgate failed logins")
        self._aead = _sealing(secret)
        self._others = [_sealing(one) for one in others]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Make the one of the settings.

        Raises:
            StorageError: a secret cannot be read, or none is set where one must be.
        """
        former, following = settings.former_secrets(), settings.following_secrets()
        believed = following if settings.secret_previous_leaked else (*following, *former)
        return cls(settings.secret_bytes(), *former, *following, believed=believed)

    def seal(self, plain: str, *, table: str, row: str, organization: str) -> bytes:
        """Encrypt with AES-256-GCM, bound to the place where it is kept; a key version stands in front."""
        nonce = os.urandom(_NONCE)
        sealed = self._aead.encrypt(nonce, plain.encode(), _place(table, row, organization))
        return _VERSION + nonce + sealed

    def open(self, sealed: bytes, *, table: str, row: str, organization: str) -> str | None:
        """Decrypt what `seal` made; None when no secret known here sealed it for that place."""
        place = _place(table, row, organization)
        opened = (_opened(aead, sealed, place) for aead in (self._aead, *self._others))
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
