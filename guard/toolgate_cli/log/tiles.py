"""Consistency proofs that are computed from the hash tiles of a log (c2sp.org/tlog-tiles)."""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from toolgate_cli.log.verification.merkle import hash_children

#: number of levels of the tree in a tile, and number of hashes in a full tile
_LEVELS: Final = 8
_WIDTH: Final = 1 << _LEVELS
_HASH_BYTES: Final = sha256().digest_size


class TileError(Exception):
    """A tile has the wrong length; the message is one line."""


class Tiles:
    """Hash tiles of a log.

    Args:
        size: number of leaves of the tree.
        read: function that returns the content of a tile, given its path, such as ``tile/0/x001/067.p/12``.
    """

    def __init__(self, size: int, read: Callable[[str], bytes]) -> None:
        self._size = size
        self._read = read
        self._tiles: dict[tuple[int, int], list[bytes]] = {}

    def consistency_proof(self, old: int) -> list[bytes]:
        """Return the proof that the tree begins with its first `old` leaves (RFC 6962, section 2.1.2).

        Raises:
            TileError: a tile is malformed.
        """
        return self._prove(old, 0, self._size, is_whole=True) if 0 < old < self._size else []

    def _prove(self, old: int, start: int, end: int, *, is_whole: bool) -> list[bytes]:
        if old == end:
            return [] if is_whole else [self._hash(start, end)]
        middle = start + _split(end - start)
        if old <= middle:
            return [*self._prove(old, start, middle, is_whole=is_whole), self._hash(middle, end)]
        return [*self._prove(old, middle, end, is_whole=False), self._hash(start, middle)]

    def _hash(self, start: int, end: int) -> bytes:
        """Return the hash of the leaves from `start` to `end`."""
        count = end - start
        if count & (count - 1):
            middle = start + _split(count)
            return hash_children(self._hash(start, middle), self._hash(middle, end))
        level, depth = divmod(count.bit_length() - 1, _LEVELS)
        first = start >> (level * _LEVELS)
        offset = first % _WIDTH
        hashes = self._tile(level, first // _WIDTH)[offset : offset + (1 << depth)]
        while len(hashes) > 1:
            pairs = zip(hashes[::2], hashes[1::2], strict=True)
            hashes = [hash_children(left, right) for left, right in pairs]
        return hashes[0]

    def _tile(self, level: int, number: int) -> list[bytes]:
        tile = self._tiles.get((level, number))
        if tile is None:
            width = min(_WIDTH, (self._size >> (level * _LEVELS)) - number * _WIDTH)
            path = tile_path(level, number, width)
            content = self._read(path)
            if len(content) != width * _HASH_BYTES:
                raise TileError(f"{path} has {len(content)} bytes; expected {width * _HASH_BYTES}")
            tile = [content[at : at + _HASH_BYTES] for at in range(0, len(content), _HASH_BYTES)]
            self._tiles[level, number] = tile
        return tile


def tile_path(level: int, number: int, width: int) -> str:
    """Return the path of a hash tile below the prefix of its log."""
    digits = f"{number:,}".split(",")
    digits[0] = digits[0].zfill(3)
    path = "/".join([*(f"x{each}" for each in digits[:-1]), digits[-1]])
    return f"tile/{level}/{path}" + (f".p/{width}" if width < _WIDTH else "")


def _split(count: int) -> int:
    """Return the largest power of two that is less than `count`."""
    return 1 << ((count - 1).bit_length() - 1)
