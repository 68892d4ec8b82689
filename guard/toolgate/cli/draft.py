"""A file is written beside its place, and put there whole: half of one is never taken for all of it."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def draft(
    target: Path,
    *,
    created: int = 0o600,
    mode: int | None = None,
    last_look: Callable[[], object] = lambda: None,
) -> Iterator[BinaryIO]:
    """Write a file beside its place; it is on the disk before it gets there, at the end of the block.

    Whatever is raised, here or in the block, leaves what was there, and no draft.

    Args:
        target: its place, in the place of a file that is there; a link is replaced itself.
        created: the mode it is made with, less what the process takes from every file (its umask).
        mode: the mode it is then given, just so; None leaves it.
        last_look: called when all is written; what it raises keeps the file from its place.

    Raises:
        OSError: it cannot be written.
    """
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, created), "wb") as file:
            if mode is not None:
                beside.chmod(mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        last_look()
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
