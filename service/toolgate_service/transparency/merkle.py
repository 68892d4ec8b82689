"""Merkle tree of RFC 6962 with SHA-256, stored in tiles of 256 hashes (C2SP tlog-tiles).

A tile of level 0 contains leaf hashes. A hash of level n + 1 is the root of a full tile of level n. The functions are
pure: the caller loads the tiles.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeAlias

HASH_BYTES = 32
#: number of hashes in a full tile, and the binary logarithm of this number
WIDTH = 256
HEIGHT = 8
EMPTY_ROOT = sha256(b"").digest()


class TileId(NamedTuple):
    """Level of a tile, and its position in the level."""

    level: int
    position: int


#: function that returns the hashes of a tile, concatenated
TileReader: TypeAlias = Callable[[TileId], bytes]


def hash_leaf(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\x00" + data).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return sha256(b"\x01" + left + right).digest()


def subtree_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root of the perfect subtree over these hashes, whose number is a power of two."""
    while len(hashes) > 1:
        hashes = [hash_node(hashes[at], hashes[at + 1]) for at in range(0, len(hashes), 2)]
    return hashes[0]


def split(tile: bytes) -> list[bytes]:
    """Return the hashes of a tile."""
    return [tile[at : at + HASH_BYTES] for at in range(0, len(tile), HASH_BYTES)]


def edge_tiles(size: int) -> list[TileId]:
    """Return the partial tiles at the right edge of a tree. The root can be computed from these tiles alone."""
    tiles, level = [], 0
    while size:
        if size % WIDTH:
            tiles.append(TileId(level, size // WIDTH))
        size //= WIDTH
        level += 1
    return tiles


def append(size: int, tiles: Mapping[TileId, bytes], hashes: Sequence[bytes]) -> dict[TileId, bytes]:
    """Append leaf hashes to a tree of `size` leaves, and return the new and changed tiles.

    `tiles` must contain the tiles of `edge_tiles(size)`.
    """
    changed: dict[TileId, bytes] = {}
    level, added = 0, list(hashes)
    while added:
        position, width = divmod(size, WIDTH)
        row = split(tiles[TileId(level, position)]) if width else []
        row += added
        full = len(row) // WIDTH
        for number in range(0, len(row), WIDTH):
            changed[TileId(level, position + number // WIDTH)] = b"".join(row[number : number + WIDTH])
        added = [subtree_root(row[number * WIDTH : (number + 1) * WIDTH]) for number in range(full)]
        size //= WIDTH
        level += 1
    return changed


def range_hash(start: int, end: int, read: TileReader) -> bytes:
    """Return the hash of the subtree with the leaves from `start` to `end` (exclusive), as RFC 6962 defines it.

    `start` must be a multiple of the smallest power of two that is not less than `end - start`.
    """
    number = end - start
    if number & (number - 1) == 0:
        return _perfect(start, number, read)
    left = 1 << (number - 1).bit_length() - 1
    return hash_node(range_hash(start, start + left, read), range_hash(start + left, end, read))


def _perfect(start: int, number: int, read: TileReader) -> bytes:
    """Return the root of the perfect subtree with `number` leaves from the index `start` on.

    `number` must be a power of two, and `start` must be a multiple of `number`.
    """
    level, inside = divmod(number.bit_length() - 1, HEIGHT)
    first, width = start >> level * HEIGHT, 1 << inside
    tile = read(TileId(level, first // WIDTH))
    offset = first % WIDTH * HASH_BYTES
    return subtree_root(split(tile[offset : offset + width * HASH_BYTES]))


def root(size: int, read: TileReader) -> bytes:
    """Return the root of the tree with the first `size` leaves."""
    return range_hash(0, size, read) if size else EMPTY_ROOT


def inclusion_ranges(index: int, size: int) -> list[tuple[int, int]]:
    """Return the ranges of leaves whose hashes prove that a leaf is in a tree, from the leaf upwards."""
    found, start, end = [], 0, size
    while end - start > 1:
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        if index < middle:
            found.append((middle, end))
            end = middle
        else:
            found.append((start, middle))
            start = middle
    return found[::-1]


def consistency_ranges(old: int, size: int) -> list[tuple[int, int]]:
    """Return the ranges of leaves whose hashes prove that a tree of `size` leaves extends its first `old` leaves.

    `old` must be between 1 and `size`. If `old` equals `size`, the result is empty.
    """
    found, start, end, complete = [], 0, size, True
    while old != end:
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        if old <= middle:
            found.append((middle, end))
            end = middle
        else:
            found.append((start, middle))
            start, complete = middle, False
    if not complete:
        found.append((start, end))
    return found[::-1]


def needed_tiles(ranges: Iterable[tuple[int, int]]) -> set[TileId]:
    """Return the tiles from which the hashes of ranges of leaves are computed."""
    needed: set[TileId] = set()

    def read(tile: TileId) -> bytes:
        needed.add(tile)
        return bytes(WIDTH * HASH_BYTES)

    for start, end in ranges:
        range_hash(start, end, read)
    return needed
