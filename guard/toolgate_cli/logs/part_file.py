"""A file that was asked for at the command line: it gets its name when it is whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from toolgate._files import replace_file
from toolgate_cli.output import fail


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
    try:
        # Once more in the end: writing took its time.
        with replace_file(target, before_rename=lambda: _refuse(target, path, replace=replace)) as file:
            yield file
    except OSError as error:
        fail(f"cannot write {str(path)!r}: {error.strerror or error}")


def _refuse(target: Path, path: Path, *, replace: bool) -> None:
    try:
        exists, ordinary = target.exists(), target.is_file()
    except (OSError, ValueError) as error:
        fail(f"cannot write {str(path)!r}: {error}")
    if exists and not ordinary:
        fail(f"{str(path)!r} is no ordinary file; write to standard output with --output -")
    if exists and not replace:
        fail(f"{str(path)!r} is there already; add --force to replace it")
