"""Signed notes and checkpoints (C2SP signed-note and tlog-checkpoint) with Ed25519 keys."""

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_ED25519 = b"\x01"
_ORIGIN = re.compile(r"[^\s+]+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Checkpoint of a log: the name of the log (origin), the number of leaves, and the root of the tree."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """Text of the checkpoint, which the signatures cover."""
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"


class Signer:
    """Private key that signs the checkpoints of a log. The name of the key is the origin of the log."""

    def __init__(self, origin: str, seed: bytes) -> None:
        if _ORIGIN.fullmatch(origin) is None:
            raise ValueError(f"Invalid origin {origin!r}: use no spaces and no plus signs")
        self.origin = origin
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self._public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._key_id = sha256(f"{origin}\n".encode() + _ED25519 + self._public).digest()[:4]

    @property
    def vkey(self) -> str:
        """Public key in the form of a verifier key of C2SP signed-note."""
        return f"{self.origin}+{self._key_id.hex()}+{b64encode(_ED25519 + self._public).decode()}"

    def sign(self, checkpoint: Checkpoint) -> str:
        """Return the signed note of a checkpoint."""
        signature = self._key_id + self._key.sign(checkpoint.text.encode())
        return f"{checkpoint.text}\n— {self.origin} {b64encode(signature).decode()}\n"

    def verify(self, note: str) -> Checkpoint | None:
        """Return the checkpoint of a note; None if this key did not sign it."""
        text, _, signatures = note.partition("\n\n")
        prefix = f"— {self.origin} "
        for line in signatures.splitlines():
            if line.startswith(prefix):
                signature = b64decode(line.removeprefix(prefix))
                try:
                    Ed25519PublicKey.from_public_bytes(self._public).verify(
                        signature[4:], f"{text}\n".encode()
                    )
                except InvalidSignature:
                    return None
                origin, size, root = text.split("\n")
                return Checkpoint(origin, int(size), b64decode(root))
        return None
