"""Hashes and proofs, compared with the definitions of RFC 6962 and its published test vectors."""

from hashlib import sha256

import pytest
from support.transparency import consistency_path, inclusion_path, mth

from toolgate_cli.log.tiles import TileError, Tiles, tile_path
from toolgate_cli.log.verification.merkle import Tree, hash_leaf, is_consistent, is_included

LEAVES = [f"entry {index}".encode() for index in range(70)]
#: inputs and roots of the tests of Certificate Transparency
RFC_6962 = [
    ("", "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
    ("00", "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
    ("10", "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
    ("2021", "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"),
    ("3031", "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4"),
    ("40414243", "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef"),
    ("5051525354555657", "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"),
    ("606162636465666768696a6b6c6d6e6f", "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"),
]


def test_roots_are_those_of_the_published_vectors() -> None:
    tree = Tree()
    assert tree.root() == sha256().digest()
    for leaf, root in RFC_6962:
        tree.append(bytes.fromhex(leaf))
        assert tree.root().hex() == root


def test_roots_are_those_of_the_definition() -> None:
    tree = Tree()
    for size, leaf in enumerate(LEAVES):
        assert (tree.size, tree.root()) == (size, mth(LEAVES[:size]))
        tree.append(leaf)


def test_inclusion_proofs_verify_only_unchanged() -> None:
    for size in range(1, 40):
        root = mth(LEAVES[:size])
        for index in range(size):
            proof = inclusion_path(index, LEAVES[:size])
            leaf = hash_leaf(LEAVES[index])
            assert is_included(leaf, index, size, proof, root)
            others = [[*proof, root], proof[:-1], [*proof[:-1], root], proof[::-1], [root, *proof]]
            assert not any(is_included(leaf, index, size, each, root) for each in others if each != proof)
            assert not is_included(hash_leaf(b"other"), index, size, proof, root)
            assert not is_included(leaf, index, size, proof, hash_leaf(b"other"))
            assert not any(
                is_included(leaf, other, size, proof, root) for other in range(-1, 42) if other != index
            )


def test_consistency_proofs_verify_only_unchanged() -> None:
    for new in range(1, 40):
        new_root = mth(LEAVES[:new])
        for old in range(new + 1):
            proof, root = consistency_path(old, LEAVES[:new]) if old else [], mth(LEAVES[:old])
            assert is_consistent(old, root, new, new_root, proof)
            others = [[*proof, root], proof[:-1], [*proof[:-1], root], proof[::-1], [root, *proof]]
            assert not any(is_consistent(old, root, new, new_root, each) for each in others if each != proof)
            assert not is_consistent(old, hash_leaf(b"other"), new, new_root, proof)
            assert old in {0, new} or not is_consistent(old, root, new, hash_leaf(b"other"), proof)
            assert not is_consistent(new + 1, root, new, new_root, proof)


def tile(leaves: list[bytes], path: str) -> bytes:
    """Return a hash tile by the definition of c2sp.org/tlog-tiles."""
    _, level, *rest = path.removesuffix("/").split("/")
    partial = rest.pop() if rest[-2:-1] and rest[-2].endswith(".p") else None
    number = int("".join(each.strip("x").removesuffix(".p") for each in rest))
    step = 256 ** int(level)
    width = int(partial) if partial else 256
    starts = [(number * 256 + at) * step for at in range(width)]
    assert all(start + step <= len(leaves) for start in starts)
    return b"".join(mth(leaves[start : start + step]) for start in starts)


def test_tiles_give_the_consistency_proof() -> None:
    leaves = [f"entry {index}".encode() for index in range(1400)]
    for old, new in [
        (1, 2),
        (3, 7),
        (255, 256),
        (256, 257),
        (255, 300),
        (256, 512),
        (300, 1400),
        (1024, 1400),
        (1399, 1400),
    ]:
        tiles = Tiles(new, lambda path, new=new: tile(leaves[:new], path))  # type: ignore[misc] # an early binding
        proof = tiles.consistency_proof(old)
        assert proof == consistency_path(old, leaves[:new])
        assert is_consistent(old, mth(leaves[:old]), new, mth(leaves[:new]), proof)


def test_tile_of_another_length_is_refused() -> None:
    with pytest.raises(TileError, match="31 bytes"):
        Tiles(2, lambda path: b"x" * 31).consistency_proof(1)


@pytest.mark.parametrize(
    ("number", "width", "path"),
    [
        (1234067, 256, "tile/0/x001/x234/067"),
        (273, 112, "tile/0/273.p/112"),
        (0, 256, "tile/0/000"),
        (1000, 1, "tile/0/x001/000.p/1"),
    ],
)
def test_tile_paths_are_those_of_the_specification(number: int, width: int, path: str) -> None:
    assert tile_path(0, number, width) == path
