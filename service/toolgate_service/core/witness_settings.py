"""Setting of the witnesses that cosign the checkpoints of the gateway's transparency logs."""

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from toolgate_service.core.addresses import is_web_address

#: signature type of timestamped Ed25519 cosignatures, as defined by https://c2sp.org/signed-note
COSIGNATURE_TYPE: Final = 0x04
#: example of an entry for error messages
WITNESS_EXAMPLE: Final = "https://witness.example.com example.com/witness+98dc29da+BOu…"

_PUBLIC_KEY_BYTES: Final = 32
_KEY_ID_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Witness:
    """Witness of transparency logs.

    Attributes:
        url: URL prefix of the witness, without a slash at the end. Checkpoints are sent to ``<url>/add-checkpoint``.
        name: Name of the witness in its cosignatures.
        public_key: The 32 bytes of its Ed25519 public key.
    """

    url: str
    name: str
    public_key: bytes

    @property
    def key_id(self) -> bytes:
        """The key id, which is the beginning of each cosignature."""
        data = self.name.encode() + b"\n" + bytes([COSIGNATURE_TYPE]) + self.public_key
        return hashlib.sha256(data).digest()[:_KEY_ID_BYTES]

    @property
    def verifier_key(self) -> str:
        """The verifier key, ``NAME+ID+KEY``."""
        encoded = base64.b64encode(bytes([COSIGNATURE_TYPE]) + self.public_key).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    def __str__(self) -> str:
        return f"{self.url} {self.verifier_key}"


def read_witnesses(text: str) -> tuple[Witness, ...]:
    """Parse a list of witnesses, separated by commas or line breaks. Each is a URL, a space and a verifier key.

    Raises:
        ValueError: An entry is invalid, or two entries have the same name or the same key.
    """
    witnesses = tuple(_read_witness(entry.strip()) for entry in re.split(r"[,\n]", text) if entry.strip())
    for index, witness in enumerate(witnesses):
        for other in witnesses[:index]:
            if witness.name == other.name or witness.public_key == other.public_key:
                raise ValueError(
                    f"contains the name {witness.name!r} or its key twice; list each witness once, with its own name "
                    "and key"
                )
    return witnesses


def _read_witness(entry: str) -> Witness:
    url, *keys = entry.split()
    # The error messages must not contain the URL, because it may include a password.
    if len(keys) != 1:
        raise ValueError(
            "has an entry that is not a URL, a space and a verifier key; write for example " + WITNESS_EXAMPLE
        )
    if not is_web_address(url):
        raise ValueError(
            "has an entry without a valid URL; write the URL without login and query, for example "
            "https://witness.example.com"
        )
    return _read_key(url.rstrip("/"), keys[0])


def _read_key(url: str, text: str) -> Witness:
    try:
        name, key_id, encoded = text.split("+", 2)
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise ValueError(
            f"contains {text!r}, which is not a verifier key; copy the line that toolgate witness keygen prints"
        ) from None
    if data[:1] != bytes([COSIGNATURE_TYPE]) or len(data) != 1 + _PUBLIC_KEY_BYTES:
        raise ValueError(
            f"contains {text!r}, which is not an Ed25519 key for cosignatures (signature type 0x04); use the verifier "
            "key of a witness, not that of a log"
        )
    witness = Witness(url, name, data[1:])
    if not name or not name.isprintable() or witness.verifier_key != text:
        raise ValueError(
            f"contains {text!r}, whose id {key_id!r} does not match its name and key; copy the whole line"
        )
    return witness
