"""The tree that is stored in tiles has the roots and proofs that RFC 6962 and RFC 9162 define."""

import re
from base64 import b64decode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tlog_vectors import VECTORS

from toolgate_service.transparency import merkle
from toolgate_service.transparency.merkle import TileId

LEAVES = [merkle.hash_leaf(b"entry %d" % number) for number in range(1_100)]


def naive_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root by the recursive definition of RFC 6962, section 2.1."""
    if not hashes:
        return merkle.EMPTY_ROOT
    if len(hashes) == 1:
        return hashes[0]
    left = 1
    while 2 * left < len(hashes):
        left *= 2
    return merkle.hash_node(naive_root(hashes[:left]), naive_root(hashes[left:]))


def build(hashes: Sequence[bytes], batches: Sequence[int]) -> dict[TileId, bytes]:
    """Return the tiles after leaf hashes were appended in batches; the last batch contains the rest."""
    tiles: dict[TileId, bytes] = {}
    size = 0
    for number in [*batches, len(hashes)]:
        batch = hashes[size : size + number]
        edge = {tile: tiles[tile] for tile in merkle.edge_tiles(size)}
        tiles |= merkle.append(size, edge, batch)
        size += len(batch)
    return tiles


def test_the_root_of_the_published_vector() -> None:
    """300 leaves of an independent implementation."""
    tiles = build(LEAVES[:300], [])
    assert merkle.root(300, tiles.__getitem__).hex() == (
        "ca393d0296bec5e0b8dcab983bd1fb7d1461f512e7267cb89631ad26fd66d848"
    )


def test_an_empty_tree_has_the_hash_of_nothing() -> None:
    assert merkle.root(0, {}.__getitem__) == naive_root([])


@given(st.integers(1, 1_100), st.lists(st.integers(1, 400), max_size=8), st.data())
def test_tiles_have_the_root_of_every_earlier_size(
    size: int, batches: list[int], data: st.DataObject
) -> None:
    tiles = build(LEAVES[:size], batches)
    earlier = data.draw(st.integers(1, size))
    assert merkle.root(earlier, tiles.__getitem__) == naive_root(LEAVES[:earlier])


@pytest.mark.parametrize("size", [1, 255, 256, 257, 511, 512, 1_023, 1_024, 1_025])
def test_a_tile_contains_the_roots_of_the_tiles_below(size: int) -> None:
    tiles = build(LEAVES[:size], [7])
    assert len(tiles) == len({*tiles} & {TileId(level, place) for level in (0, 1) for place in range(5)})
    for full in range(size // 256):
        root = naive_root(LEAVES[full * 256 : (full + 1) * 256])
        assert merkle.split(tiles[TileId(1, 0)])[full] == root
    assert sum(len(hashes) // 32 for tile, hashes in tiles.items() if tile.level == 0) == size


def includes(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> bool:
    """Verify an inclusion proof by RFC 9162, section 2.1.3.2."""
    place, last, found = index, size - 1, leaf
    for one in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = merkle.hash_node(one, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = merkle.hash_node(found, one)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def extends(old: int, size: int, old_root: bytes, root: bytes, proof: Sequence[bytes]) -> bool:
    """Verify a consistency proof by RFC 9162, section 2.1.4.2."""
    if old == size:
        return not proof and old_root == root
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    place, last = old - 1, size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    before = after = path[0]
    for one in path[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            before, after = merkle.hash_node(one, before), merkle.hash_node(one, after)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            after = merkle.hash_node(after, one)
        place, last = place >> 1, last >> 1
    return last == 0 and before == old_root and after == root


@given(st.integers(1, 1_100), st.data())
def test_inclusion_proofs_verify_for_their_leaf_only(size: int, data: st.DataObject) -> None:
    tiles = build(LEAVES[:size], [])
    index = data.draw(st.integers(0, size - 1))
    ranges = merkle.inclusion_ranges(index, size)
    needed = merkle.needed_tiles(ranges)
    proof = [merkle.range_hash(*one, {tile: tiles[tile] for tile in needed}.__getitem__) for one in ranges]
    root = merkle.root(size, tiles.__getitem__)
    assert includes(index, size, LEAVES[index], proof, root)
    assert not includes(index, size, merkle.hash_leaf(b"another"), proof, root)


@given(st.integers(1, 1_100), st.data())
def test_consistency_proofs_verify_for_their_roots_only(size: int, data: st.DataObject) -> None:
    tiles = build(LEAVES[:size], [])
    old = data.draw(st.integers(1, size))
    proof = [merkle.range_hash(*one, tiles.__getitem__) for one in merkle.consistency_ranges(old, size)]
    root, old_root = (merkle.root(one, tiles.__getitem__) for one in (size, old))
    assert extends(old, size, old_root, root, proof)
    assert not extends(old, size, merkle.hash_leaf(b"another"), root, proof)


VECTOR_LEAVES = [merkle.hash_leaf(bytes.fromhex(leaf)) for leaf in VECTORS["tree"]["leaves"]]


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_and_proofs_of_the_vectors_of_certificate_transparency(size: int) -> None:
    tiles = build(VECTOR_LEAVES[:size], [3])
    assert merkle.root(size, tiles.__getitem__).hex() == VECTORS["tree"]["roots"][size]
    for kind, ranges in (("inclusion", merkle.inclusion_ranges), ("consistency", merkle.consistency_ranges)):
        for vector in VECTORS["tree"][kind]:
            first, end = vector["index" if kind == "inclusion" else "old"], vector["size"]
            if end == size and (first or kind == "inclusion"):
                proof = [merkle.range_hash(*one, tiles.__getitem__).hex() for one in ranges(first, size)]
                assert proof == vector["proof"]


@pytest.mark.parametrize("vector", VECTORS["logs"], ids=lambda vector: str(vector["size"]))
def test_tiles_of_the_vectors(vector: dict[str, Any]) -> None:
    size = vector["size"]
    tiles = build([merkle.hash_leaf(b"entry %d" % number) for number in range(size)], [100, 500])
    assert merkle.root(size, tiles.__getitem__) == b64decode(vector["root"])
    for path, digest in (vector["files"] or {}).items():
        found = re.fullmatch(r"tile/([0-9]+)/([0-9]{3})(\.p/[0-9]+)?", path)
        if found is not None:
            assert sha256(tiles[TileId(int(found[1]), int(found[2]))]).hexdigest() == digest
