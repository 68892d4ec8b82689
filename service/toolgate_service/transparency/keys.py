"""Private keys that sign the checkpoints of the transparency logs."""

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import StorageError
from toolgate_service.transparency.models import TransparencyLog
from toolgate_service.transparency.note import Signer


class BehindPublished(Exception):
    """Error for a log whose checkpoints must not be signed. The message contains the reason and the fix.

    Either the database does not contain a checkpoint that was published, or the key that signed the log's earlier
    checkpoints is missing.
    """


class LogKeys:
    """Private keys of the logs: one key in a file for all logs, or one key for each log, encrypted in the database.

    Args:
        vault: Encryption of stored secrets.
        path: PEM file with an Ed25519 key for all logs; None to create a key for each log.

    Raises:
        StorageError: The file cannot be read, or does not contain an Ed25519 key.
    """

    def __init__(self, vault: Vault, path: Path | None) -> None:
        self._vault = vault
        self._seed = None if path is None else _read_seed(path)

    def create(self, log_id: str, organization_id: str) -> tuple[bytes, bytes]:
        """Return the key of a new log, and the encrypted key, which is empty if the key is in a file."""
        if self._seed is not None:
            return self._seed, b""
        seed = os.urandom(32)
        sealed = self._vault.seal(
            seed.hex(), table=TransparencyLog.__name__, row=log_id, organization=organization_id
        )
        return seed, sealed

    def signer(self, log: TransparencyLog) -> Signer:
        """Return the signer of a log's checkpoints.

        Raises:
            BehindPublished: The key with which earlier checkpoints of the log were signed is missing, cannot be
                decrypted, or is not the available key.
        """
        seed = self._seed
        if log.ciphertext:
            opened = self._vault.open(
                log.ciphertext, table=TransparencyLog.__name__, row=log.id, organization=log.organization_id
            )
            seed = None if opened is None else bytes.fromhex(opened)
        signer = None if seed is None else Signer(log.origin, seed)
        if signer is None or signer.vkey != log.vkey:
            raise BehindPublished(
                "The key with which earlier checkpoints were signed is missing: restore the secret of the gateway, or the "
                "file in TOOLGATE_TRANSPARENCY_KEY_FILE"
            )
        return signer


def _read_seed(path: Path) -> bytes:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise StorageError(
            f"TOOLGATE_TRANSPARENCY_KEY_FILE: cannot read a key from {str(path)!r}: {error}"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise StorageError(
            f"TOOLGATE_TRANSPARENCY_KEY_FILE: {str(path)!r} contains another kind of key; create an Ed25519 key with: "
            "openssl genpkey -algorithm ed25519"
        )
    return key.private_bytes_raw()
