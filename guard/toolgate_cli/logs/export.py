"""``toolgate logs export``."""

import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from toolgate._files import replace_file
from toolgate_cli.client import Management, Query
from toolgate_cli.credentials import stored_login
from toolgate_cli.logs.entries import (
    EXPORT,
    PATH,
    Filters,
    From,
    OfAction,
    OfAgent,
    OfStatus,
    To,
    lines_of,
    span_query,
)
from toolgate_cli.options import Environment, InEnvironment
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
    _check_target(target, path, replace=replace)
    try:
        # Once more in the end: writing took its time.
        with replace_file(target, before_rename=lambda: _check_target(target, path, replace=replace)) as file:
            yield file
    except OSError as error:
        fail(f"cannot write {str(path)!r}: {error.strerror or error}")


def _check_target(target: Path, path: Path, *, replace: bool) -> None:
    try:
        exists, ordinary = target.exists(), target.is_file()
    except (OSError, ValueError) as error:
        fail(f"cannot write {str(path)!r}: {error}")
    if exists and not ordinary:
        fail(f"{str(path)!r} is no ordinary file; write to standard output with --output -")
    if exists and not replace:
        fail(f"{str(path)!r} is there already; add --force to replace it")


class Form(StrEnum):
    """How entries are written."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"


_BY_SUFFIX = {".csv": Form.CSV, ".json": Form.JSON}
_STDOUT = "-"


def export(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file, or - for standard output.")
    ] = _STDOUT,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="JSON lines, one JSON array, or CSV. Default: by the file's name, else JSON lines.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    agent: OfAgent = None,
    action: OfAction = None,
    status: OfStatus = None,
    begins: From = None,
    ends: To = None,
    environment: InEnvironment = Environment.PRODUCTION,
) -> None:
    """Write all entries that match to a file, newest first, from one snapshot: the whole file or none."""
    if output == _STDOUT and sys.stdout.isatty():
        fail("an export is for files; name one with --output, or read here with: toolgate logs search")
    span = span_query(begins, ends)
    chosen = form or _BY_SUFFIX.get(Path(output).suffix.lower(), Form.JSONL)
    with stored_login() as management:
        query = Filters(agent, action, status, environment).query(management) | span
        target = (
            nullcontext(sys.stdout.buffer) if output == _STDOUT else whole_file(Path(output), replace=force)
        )
        with target as file, _progress(management, query) as progress:
            count = _write(file, management, query, chosen, progress)
    if output != _STDOUT:
        typer.echo(f"wrote {count:,} {'entry' if count == 1 else 'entries'} to {output!r}", err=True)


def _write(file: BinaryIO, management: Management, query: Query, form: Form, progress: "_Progress") -> int:
    asked = Form.CSV if form is Form.CSV else Form.JSONL
    count = 0
    with closing(management.pieces(EXPORT, {**query, "format": asked})) as pieces:
        for part, entries in _array(pieces) if form is Form.JSON else _as_they_come(pieces, form):
            file.write(part)
            count += entries
            progress.advance(entries)
    file.flush()
    return count


def _as_they_come(pieces: Iterator[bytes], form: Form) -> Generator[tuple[bytes, int]]:
    # An entry is a line: in JSON and in its cells of CSV the ends of lines are escaped. The first of CSV is headings.
    heading = form is Form.CSV
    for piece in pieces:
        lines = piece.count(b"\n")
        yield piece, lines - (heading and lines > 0)
        heading = heading and not lines


def _array(pieces: Iterator[bytes]) -> Generator[tuple[bytes, int]]:
    before = b"[\n"
    for line in lines_of(pieces):
        yield before + line, 1
        before = b",\n"
    yield (b"[]\n" if before == b"[\n" else b"\n]\n"), 0


class _Progress:
    """Where a long export stands, on a terminal; elsewhere nothing is shown."""

    def __init__(self, bar: Progress | None, total: int | None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("exporting", total=total)

    def advance(self, entries: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, entries)


@contextmanager
def _progress(management: Management, query: Query) -> Iterator[_Progress]:
    if not sys.stderr.isatty():
        yield _Progress(None, None)
        return
    # The gateway counts without the span of time, and not beyond some thousands: then the end is unknown.
    total = None if query.get("from") or query.get("to") else management.total(PATH, query)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Progress(bar, total)
