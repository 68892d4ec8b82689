"""Small transparency logs that sign any checkpoint, also inconsistent ones.

Roots and proofs follow the recursive definitions of RFC 6962, section 2.1, so that they are independent of the code under
test.
"""

import base64
import hashlib
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ORIGIN = "toolgate.example.com/tlog/acme/production"


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def verifier_key(name: str, kind: int, public: bytes) -> str:
    data = bytes([kind]) + public
    key_id = hashlib.sha256(name.encode() + b"\n" + data).hexdigest()[:8]
    return f"{name}+{key_id}+{encode(data)}"


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the Merkle tree hash of the leaves."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    half = _half(len(leaves))
    return hashlib.sha256(b"\x01" + root(leaves[:half]) + root(leaves[half:])).digest()


def prove(old: int, leaves: Sequence[bytes], *, whole: bool = True) -> list[bytes]:
    """Return the consistency proof from the first `old` leaves to all leaves."""
    if old == len(leaves):
        return [] if whole else [root(leaves)]
    half = _half(len(leaves))
    if old <= half:
        return [*prove(old, leaves[:half], whole=whole), root(leaves[half:])]
    return [*prove(old - half, leaves[half:], whole=False), root(leaves[:half])]


def _half(size: int) -> int:
    return 1 << (size - 1).bit_length() - 1


class SignedLog:
    """A log of leaves with a key.

    Args:
        leaves: the number of leaves, or the leaves themselves.
        origin: its origin, which is also the name of its key.
        seed: the seed of its key.
    """

    def __init__(
        self, leaves: int | Sequence[bytes], *, origin: str = ORIGIN, seed: bytes = bytes(range(32))
    ) -> None:
        self.leaves = [b"entry %d" % index for index in range(leaves)] if isinstance(leaves, int) else leaves
        self.origin = origin
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.vkey = verifier_key(origin, 1, self._key.public_key().public_bytes_raw())

    def fork(self, at: int) -> "SignedLog":
        """Return a log with the same key and other leaves after the first `at` ones."""
        other = [b"other %d" % index for index in range(at, len(self.leaves))]
        made = SignedLog([*self.leaves[:at], *other], origin=self.origin)
        made._key, made.vkey = self._key, self.vkey
        return made

    def text(self, size: int) -> str:
        """Return the text of a checkpoint, without signatures."""
        return f"{self.origin}\n{size}\n{encode(root(self.leaves[:size]))}\n"

    def sign(self, text: str) -> str:
        """Return a signature line."""
        key_id = bytes.fromhex(self.vkey.split("+")[1])
        return f"— {self.origin} {encode(key_id + self._key.sign(text.encode()))}\n"

    def checkpoint(self, size: int) -> str:
        """Return a signed checkpoint."""
        text = self.text(size)
        return f"{text}\n{self.sign(text)}"

    def proof(self, old: int, size: int) -> list[bytes]:
        """Return the consistency proof between two sizes."""
        return prove(old, self.leaves[:size]) if old else []

    def request(self, old: int, size: int, *, proof: Sequence[bytes] | None = None) -> bytes:
        """Return the body of `add-checkpoint`."""
        hashes = self.proof(old, size) if proof is None else proof
        return "\n".join([f"old {old}", *map(encode, hashes), "", self.checkpoint(size)]).encode()
