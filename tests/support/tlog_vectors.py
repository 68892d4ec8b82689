"""Test vectors for the C2SP formats of transparency logs: signed notes, checkpoints, tiles, proofs, witnesses.

The vectors are fixed: `tlog_vectors.json` was made once, and independent programs agree with it. It has these members,
where `valid` inputs must be accepted and `invalid` ones rejected:

- `keys`: the keys that sign everything without a `vkey` of its own; seeds are hexadecimal.
- `vkeys`: verifier keys.
- `notes`: signed notes; `hex` instead of `text` if a note is not valid UTF-8.
- `checkpoints`: checkpoints without extension lines, whose origin is the name of the key.
- `cosignatures`: checkpoints with the cosignature of `keys.witness`; `line` is the signature line.
- `proofs`: `.tlog-proof` files; their `extra` data is the leaf.
- `tree`: roots of the first 0 … 8 leaves, and all inclusion and consistency proofs, in hexadecimal. The leaves are those of
  the tests of Certificate Transparency.
- `logs`: logs of `entry 0`, `entry 1`, …; `files` has the SHA-256 of each tile and entry bundle, and `files_digest` is the
  SHA-256 of the sorted lines `<path> <SHA-256>`.
- `paths`: paths of level 0 tiles.
- `add_checkpoint`: requests to a witness that holds the checkpoint of size `held`, with the status of its answer, and the
  body of the answer if it is fixed.
"""

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def content(vector: dict[str, Any]) -> bytes:
    """Return the bytes of a note, checkpoint or proof."""
    return bytes.fromhex(vector["hex"]) if "hex" in vector else str(vector["text"]).encode()
