"""A transparency log made from the C2SP specifications alone, in the files that a reader fetches.

It shares no code with the gateway: tests of readers use it, and tests of the gateway compare their logs with it.
"""

import base64
import hashlib
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ORIGIN = "toolgate.example.com/log/acme/production"
SEED = bytes(range(32))
WITNESS = "witness.example.com/w1"
WITNESS_SEED = bytes(range(32, 64))


def _key_id(name: str, algorithm: int, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + bytes([algorithm]) + public).digest()[:4]


def verifier_key(name: str = ORIGIN, seed: bytes = SEED, algorithm: int = 1) -> str:
    """Return the verifier key of a log (algorithm 1) or a witness (algorithm 4)."""
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    encoded = base64.b64encode(bytes([algorithm]) + public).decode()
    return f"{name}+{_key_id(name, algorithm, public).hex()}+{encoded}"


def signature_line(text: str, name: str = ORIGIN, seed: bytes = SEED, *, time: int | None = None) -> str:
    """Return the signature line of a log, or with a time the cosignature line of a witness."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes_raw()
    if time is None:
        signed = _key_id(name, 1, public) + key.sign(text.encode())
    else:
        message = f"cosignature/v1\ntime {time}\n{text}".encode()
        signed = _key_id(name, 4, public) + time.to_bytes(8, "big") + key.sign(message)
    return f"— {name} {base64.b64encode(signed).decode()}\n"


def tile_path(level: int | str, number: int, width: int = 256) -> str:
    """Return the path of a tile, or with the level `entries` that of an entry bundle."""
    digits = f"{number:03d}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    *groups, last = (digits[at : at + 3] for at in range(0, len(digits), 3))
    name = "/".join([*(f"x{group}" for group in groups), last])
    return f"tile/{level}/{name}" + (f".p/{width}" if width < 256 else "")


class SampleLog:
    """A log of these leaves, or with `size` of the first leaves only.

    Attributes:
        leaves: Entries of the log.
        levels: Hashes of all complete subtrees, by the binary logarithm of their sizes.
    """

    def __init__(self, leaves: Sequence[bytes], *, origin: str = ORIGIN, seed: bytes = SEED) -> None:
        self.leaves = list(leaves)
        self.origin, self.seed = origin, seed
        hashes = [hashlib.sha256(b"\0" + leaf).digest() for leaf in self.leaves]
        self.levels = [hashes]
        while len(hashes) > 1:
            hashes = [_node(hashes[at], hashes[at + 1]) for at in range(0, len(hashes) - 1, 2)]
            self.levels.append(hashes)

    def root(self, size: int | None = None) -> bytes:
        """Return the root hash of the first leaves."""
        return self._subtree(0, len(self.leaves) if size is None else size)

    def _subtree(self, start: int, end: int) -> bytes:
        width = end - start
        if width == 0:
            return hashlib.sha256().digest()
        if width & (width - 1) == 0:
            return self.levels[width.bit_length() - 1][start // width]
        middle = start + (1 << ((width - 1).bit_length() - 1))
        return _node(self._subtree(start, middle), self._subtree(middle, end))

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Return the inclusion proof of a leaf, from the leaf upwards."""
        start, end, proof = 0, len(self.leaves) if size is None else size, list[bytes]()
        while end - start > 1:
            middle = start + (1 << ((end - start - 1).bit_length() - 1))
            if index < middle:
                proof.append(self._subtree(middle, end))
                end = middle
            else:
                proof.append(self._subtree(start, middle))
                start = middle
        return proof[::-1]

    def consistency(self, old: int, size: int | None = None) -> list[bytes]:
        """Return the consistency proof from an older size."""
        start, end, proof = 0, len(self.leaves) if size is None else size, list[bytes]()
        if old == 0:
            return []
        while old != end:
            middle = start + (1 << ((end - start - 1).bit_length() - 1))
            if old <= middle:
                proof.append(self._subtree(middle, end))
                end = middle
            else:
                proof.append(self._subtree(start, middle))
                start = middle
        return [self._subtree(start, end), *proof[::-1]] if start else proof[::-1]

    def checkpoint(self, size: int | None = None, *, cosigned_at: int | None = None) -> str:
        """Return the signed checkpoint of the first leaves, with a cosignature of `WITNESS` if there is a time."""
        size = len(self.leaves) if size is None else size
        text = f"{self.origin}\n{size}\n{base64.b64encode(self.root(size)).decode()}\n"
        lines = signature_line(text, self.origin, self.seed)
        if cosigned_at is not None:
            lines += signature_line(text, WITNESS, WITNESS_SEED, time=cosigned_at)
        return f"{text}\n{lines}"

    def proof(self, index: int, size: int | None = None) -> str:
        """Return the `.tlog-proof` of a leaf, with the leaf as its extra data."""
        hashes = "".join(f"{base64.b64encode(each).decode()}\n" for each in self.inclusion(index, size))
        extra = base64.b64encode(self.leaves[index]).decode()
        head = f"c2sp.org/tlog-proof@v1\nextra {extra}\nindex {index}\n{hashes}"
        return f"{head}\n{self.checkpoint(size)}"

    def files(self, size: int | None = None) -> dict[str, bytes]:
        """Return the tiles and entry bundles of the first leaves, by path."""
        size = len(self.leaves) if size is None else size
        found = dict[str, bytes]()
        for level in range(8):
            count = size >> (8 * level)
            for first in range(0, count, 256):
                hashes = self.levels[8 * level][first : min(first + 256, count)]
                found[tile_path(level, first // 256, len(hashes))] = b"".join(hashes)
        for first in range(0, size, 256):
            leaves = self.leaves[first : min(first + 256, size)]
            bundle = b"".join(len(leaf).to_bytes(2, "big") + leaf for leaf in leaves)
            found[tile_path("entries", first // 256, len(leaves))] = bundle
        return found

    def write(self, folder: Path, size: int | None = None) -> Path:
        """Write the checkpoint, tiles and entry bundles into a folder, which may hold those of a smaller size."""
        for path, content in self.files(size).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "checkpoint").write_text(self.checkpoint(size), encoding="utf-8")
        return folder


@cache
def large_log() -> SampleLog:
    """Return a log of the entries `entry 0` to `entry 69999`, whose tiles have three levels."""
    return SampleLog([b"entry %d" % number for number in range(70_000)])


def remove_replaced_tiles(folder: Path) -> None:
    """Remove partial tiles and bundles whose full ones exist, as a log may do."""
    for partial in list(folder.rglob("*.p")):
        if partial.with_suffix("").exists():
            shutil.rmtree(partial)


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
