"""Memory of the checkpoints that this gateway has signed or served, kept outside of the database.

After the database is restored from a backup, its tree may be smaller than a checkpoint that readers have seen. If the
gateway then appended leaves, it would sign two different trees of the same size (a fork). Before it signs, the gateway
therefore compares the tree with this memory, and refuses to sign if the tree does not contain a remembered checkpoint.
"""

import json
import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path

from toolgate_service.transparency.merkle import HASH_BYTES
from toolgate_service.transparency.note import Checkpoint

logger = logging.getLogger("toolgate.gateway")

#: approximate number of lines above which the gateway shortens the file when it starts
_LONG = 10_000


class PublishedCheckpoints:
    """Checkpoints that readers have seen: the latest of each log, and all that were fetched from witnesses.

    The checkpoints are kept in memory and in a file.

    Several processes may append to the same file, which contains a line of JSON for each checkpoint.

    Args:
        path: Path of the file; None to remember the checkpoints only until the process ends.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._latest: dict[str, Checkpoint] = {}
        self._cosigned: dict[str, set[Checkpoint]] = {}
        self._has_warned = False

    def load(self) -> None:
        """Read the file, and shorten it if it is long. A line that was written only partly is ignored."""
        if self._path is None or not self._path.is_file():
            return
        lines = self._path.read_bytes().splitlines()
        for line in lines:
            try:
                origin, size, root, is_cosigned = json.loads(line)
                checkpoint = Checkpoint(str(origin), int(size), b64decode(root, validate=True))
            except (ValueError, TypeError, OverflowError, RecursionError):
                continue
            if checkpoint.size >= 0 and len(checkpoint.root) == HASH_BYTES:
                self._remember(checkpoint, is_cosigned=is_cosigned is True)
        if len(lines) > _LONG + 2 * len(self._latest):
            self._shorten(self._path)

    def _shorten(self, path: Path) -> None:
        """Replace the file with one that contains only the remembered checkpoints."""
        shorter = path.with_name(f"{path.name}.{os.getpid()}")
        shorter.unlink(missing_ok=True)
        _append(shorter, self._latest.values(), is_cosigned=False)
        for cosigned in self._cosigned.values():
            _append(shorter, cosigned, is_cosigned=True)
        shorter.replace(path)

    def find(self, origin: str) -> Sequence[Checkpoint]:
        """Return the remembered checkpoints of a log. The tree of the log must contain all of them."""
        latest = self._latest.get(origin)
        return [*([] if latest is None else [latest]), *self._cosigned.get(origin, ())]

    def add(self, checkpoint: Checkpoint, *, is_cosigned: bool = False) -> None:
        """Remember a checkpoint. Call this method before the checkpoint is sent to a client.

        `is_cosigned` is true for a checkpoint that was fetched from a witness.
        """
        if not self._remember(checkpoint, is_cosigned=is_cosigned) or self._path is None:
            return
        try:
            _append(self._path, [checkpoint], is_cosigned=is_cosigned)
        except OSError as error:
            if not self._has_warned:
                logger.warning(
                    "cannot write published checkpoints to %s: %s; after a restart, the gateway cannot recognize a "
                    "restored database",
                    self._path,
                    error.strerror,
                )
            self._has_warned = True

    def _remember(self, checkpoint: Checkpoint, *, is_cosigned: bool) -> bool:
        """Keep a checkpoint in memory, and return whether it was added.

        For each log, all checkpoints from witnesses are kept, but only the largest of the other checkpoints.
        """
        if is_cosigned:
            cosigned = self._cosigned.setdefault(checkpoint.origin, set())
            is_new = checkpoint not in cosigned
            cosigned.add(checkpoint)
            return is_new
        known = self._latest.get(checkpoint.origin)
        if known is not None and known.size >= checkpoint.size:
            return False
        self._latest[checkpoint.origin] = checkpoint
        return True


def _append(path: Path, checkpoints: Iterable[Checkpoint], *, is_cosigned: bool) -> None:
    """Append a line for each checkpoint.

    A line break is written before these lines, because the last line of the file may be incomplete.
    """
    lines = [
        json.dumps([one.origin, one.size, b64encode(one.root).decode(), is_cosigned]) for one in checkpoints
    ]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write("\n".join(["", *lines, ""]))
