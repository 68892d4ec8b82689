"""Hashes and proofs of a Merkle tree: RFC 6962, section 2.1, and RFC 9162, sections 2.1.3.2 and 2.1.4.2."""

from collections.abc import Sequence
from hashlib import sha256


def hash_leaf(leaf: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + leaf).digest()


def hash_children(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node."""
    return sha256(b"\1" + left + right).digest()


class Tree:
    """Merkle tree to which leaves are appended; it stores only the hashes that later roots need."""

    def __init__(self) -> None:
        self.size = 0
        self._stack: list[bytes] = []

    def append(self, leaf: bytes) -> None:
        """Append a leaf."""
        node, index, stack = sha256(b"\0" + leaf).digest(), self.size, self._stack
        while index & 1:
            node = sha256(b"\1" + stack.pop() + node).digest()
            index >>= 1
        stack.append(node)
        self.size += 1

    def root(self) -> bytes:
        """Return the root hash of all leaves so far."""
        if not self._stack:
            return sha256(b"").digest()
        *rest, node = self._stack
        for left in reversed(rest):
            node = hash_children(left, node)
        return node


def is_included(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Return whether an inclusion proof shows that the tree with this root contains a leaf hash at an index."""
    if not 0 <= index < size:
        return False
    node, last = leaf, size - 1
    for sibling in proof:
        if last == 0:
            return False
        if index & 1 or index == last:
            node = hash_children(sibling, node)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            node = hash_children(node, sibling)
        index, last = index >> 1, last >> 1
    return last == 0 and node == root


def is_consistent(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether a consistency proof shows that the tree of size `new` begins with the tree of size `old`."""
    if not 0 <= old <= new or (old in {0, new} and proof):
        return False
    if old == 0:
        return old_root == Tree().root()
    if old == new:
        return old_root == new_root
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        return False
    index, last = old - 1, new - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if index & 1 or index == last:
            first, second = hash_children(sibling, first), hash_children(sibling, second)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            second = hash_children(second, sibling)
        index, last = index >> 1, last >> 1
    return last == 0 and first == old_root and second == new_root
