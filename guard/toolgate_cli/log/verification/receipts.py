"""Verification of a receipt: the proof that one leaf is in a log (c2sp.org/tlog-proof)."""

import re
from collections.abc import Sequence
from typing import Final

from .formats import LEAF_KIND, LEAVES, MAX_LEAF, is_utf8, leaf_matcher, parse_json
from .merkle import hash_leaf, is_included
from .notes import Checkpoint, Key, VerificationError, decode_base64, open_checkpoint, show
from .results import Result
from .state import State

PROOF_HEADER: Final = "c2sp.org/tlog-proof@v1"
#: maximum bytes of a receipt
MAX_RECEIPT: Final = 256 * 1024
_MAX_HASHES: Final = 63
_PROOF = re.compile(
    re.escape(PROOF_HEADER) + r"\nextra (.*)\nindex (0|[1-9][0-9]{0,17})\n((?:[A-Za-z0-9+/=]+\n)*)"
)


def verify_receipt(
    text: bytes,
    *,
    key: Key | None = None,
    state: State | None = None,
    witnesses: Sequence[Key] = (),
    required: int = 0,
) -> Result:
    """Verify a receipt; the arguments are those of `verify_export`.

    Raises:
        VerificationError: neither `key` nor the state contains the key of the log, or the state file cannot be written.
    """
    result, state = Result("receipt"), state or State()
    try:
        leaf, index, hashes, note = _parse(text)
    except ValueError as error:
        result.find("receipt", f"the receipt is malformed: {error}")
        return result
    result.origin = note.partition("\n")[0]
    pinned = state.pinned(result.origin)
    if key is None and pinned is None:
        raise VerificationError(
            f"the key of the log {show(result.origin)} is unknown; give it with --key, or give a state file that "
            "contains it"
        )
    key = key or Key.parse(pinned or "")
    result.key = key.vkey
    if pinned not in {None, key.vkey}:
        result.find("key", f"the state file has the key {show(pinned)}, not {show(key.vkey)}")
    try:
        checkpoint = result.checkpoint = open_checkpoint(note, key, witnesses)
    except VerificationError as error:
        result.find("checkpoint", str(error))
        return result
    result.check_witnesses(required)
    _check_leaf(result, leaf)
    if not is_included(hash_leaf(leaf), index, checkpoint.size, hashes, checkpoint.root):
        result.find("proof", f"the proof does not show that the log contains the leaf at index {index}")
    _compare(result, checkpoint, key, state)
    return result


def _parse(text: bytes) -> tuple[bytes, int, list[bytes], str]:
    """Return the leaf, its index, the hashes of the proof, and the checkpoint."""
    head, _, note = text.decode().partition("\n\n")
    found = _PROOF.fullmatch(head + "\n")
    leaf = decode_base64(found[1]) if found else None
    if not found or not leaf:
        raise ValueError("expected the lines extra, index and hashes, an empty line and a checkpoint")
    proof = [decode_base64(line) for line in found[3].split()]
    hashes = [each for each in proof if each is not None and len(each) == len(hash_leaf(b""))]
    if len(hashes) != len(proof) or len(proof) > _MAX_HASHES:
        raise ValueError("a hash is malformed, or there are too many hashes")
    return leaf, int(found[2]), hashes, note


def _check_leaf(result: Result, leaf: bytes) -> None:
    found = LEAF_KIND(leaf)
    kind = found[1].decode() if found else ""
    matches = kind in LEAVES and leaf_matcher(kind)(leaf)
    if not matches or len(leaf) >= MAX_LEAF or not is_utf8(leaf):
        result.find("leaf", f"the receipt does not contain a valid leaf of this log: {show(leaf)}")
    else:
        result.leaf = parse_json(leaf)


def _compare(result: Result, checkpoint: Checkpoint, key: Key, state: State) -> None:
    seen = state.seen(key.name)
    known = seen.get(checkpoint.size)
    if known is not None and known != checkpoint.root:
        result.find(
            "fork",
            (
                f"an earlier verification saw another checkpoint with {checkpoint.size} leaves: the gateway "
                "published two versions of the log"
            ),
        )
    elif known is None and seen:
        result.notes.append(
            f"the state file contains no checkpoint with {checkpoint.size} leaves; to compare this "
            "checkpoint with those in the state file, verify an export"
        )
    if not result.findings:
        state.add(key, [checkpoint])
