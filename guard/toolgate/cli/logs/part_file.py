"""A file that gets its name when it is whole: half of one is never taken for all of it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from toolgate.cli.output import fail


@contextmanager
def whole_file(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Write a file beside its place, readable for its owner alone, and put it there at the end of the block.

    Args:
        path: its place; of a link, where that leads.
        replace: put it in the place of a file that is there.

    Raises:
        typer.Exit: it cannot be written, or there is one already; one line says so, and what was there is there.
    """
    try:
        target = path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        fail(f"cannot write {str(path)!r}: {error}")
    _refuse(target, path, replace=replace)
    draft = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Once more: writing took its time.
        _refuse(target, path, replace=replace)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        fail(f"cannot write {str(path)!r}: {error.strerror or error}")
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _refuse(target: Path, path: Path, *, replace: bool) -> None:
    try:
        exists, ordinary = target.exists(), target.is_file()
    except (OSError, ValueError) as error:
        fail(f"cannot write {str(path)!r}: {error}")
    if exists and not ordinary:
        fail(f"{str(path)!r} is no ordinary file; write to standard output with --output -")
    if exists and not replace:
        fail(f"{str(path)!r} is there already; add --force to replace it")
