"""``toolgate logs export``: write log entries to a temporary file, which is renamed when it is complete."""

import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from toolgate._files import replace_file
from toolgate_cli.client import GatewayClient, Query
from toolgate_cli.credentials import stored_session
from toolgate_cli.logs.entries import (
    EXPORT_PATH,
    LOGS_PATH,
    ActionFilter,
    AgentFilter,
    Filters,
    From,
    StatusFilter,
    To,
    split_lines,
    time_query,
)
from toolgate_cli.options import Environment, EnvironmentOption
from toolgate_cli.output import fail


class Format(StrEnum):
    """File format of an export."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"


_FORMAT_BY_SUFFIX: Final = {".csv": Format.CSV, ".json": Format.JSON}
_STDOUT: Final = "-"


def export(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file, or - for standard output.")
    ] = _STDOUT,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="JSON lines, one JSON array, or CSV. Default: by the file's name, else JSON lines.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    agent: AgentFilter = None,
    action: ActionFilter = None,
    status: StatusFilter = None,
    begins: From = None,
    ends: To = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
) -> None:
    """Write all entries that match all filters to a file, newest first; entries logged meanwhile are left out."""
    if output == _STDOUT and sys.stdout.isatty():
        fail(
            "an export is not shown on the terminal; name a file with --output, or use: toolgate logs search"
        )
    times = time_query(begins, ends)
    chosen = form or _FORMAT_BY_SUFFIX.get(Path(output).suffix.lower(), Format.JSONL)
    with stored_session() as client:
        query = Filters(agent, action, status, environment).query(client) | times
        target = (
            nullcontext(sys.stdout.buffer) if output == _STDOUT else open_export(Path(output), replace=force)
        )
        with target as file, _open_progress(client, query) as progress:
            count = _write(file, client, query, chosen, progress)
    if output != _STDOUT:
        typer.echo(f"wrote {count:,} {'entry' if count == 1 else 'entries'} to {output!r}", err=True)


@contextmanager
def open_export(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Yield a temporary file, readable only by its owner. At the end of the `with` block, rename it to `path`.

    A symbolic link at `path` is followed.

    Raises:
        typer.Exit: the file cannot be written, or it exists and `replace` is false.
    """
    try:
        target = path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        fail(f"cannot write {str(path)!r}: {error}")
    _check_target(target, path, replace=replace)
    try:
        # The target is checked again before the rename, because another program may have created the file meanwhile.
        with replace_file(target, before_rename=lambda: _check_target(target, path, replace=replace)) as file:
            yield file
    except OSError as error:
        fail(f"cannot write {str(path)!r}: {error.strerror or error}")


def _check_target(target: Path, path: Path, *, replace: bool) -> None:
    try:
        exists, is_file = target.exists(), target.is_file()
    except (OSError, ValueError) as error:
        fail(f"cannot write {str(path)!r}: {error}")
    if exists and not is_file:
        fail(f"{str(path)!r} is not a regular file; write to standard output with --output -")
    if exists and not replace:
        fail(f"{str(path)!r} already exists; add --force to replace it")


def _write(file: BinaryIO, client: GatewayClient, query: Query, form: Format, progress: "_Progress") -> int:
    requested = Format.CSV if form is Format.CSV else Format.JSONL
    count = 0
    with closing(client.stream(EXPORT_PATH, {**query, "format": requested})) as chunks:
        for part, entries in _join_array(chunks) if form is Format.JSON else _count_lines(chunks, form):
            file.write(part)
            count += entries
            progress.advance(entries)
    file.flush()
    return count


def _count_lines(chunks: Iterator[bytes], form: Format) -> Generator[tuple[bytes, int]]:
    """Yield each chunk with the number of entries that end in it; the heading of a CSV file is not counted."""
    has_heading = form is Format.CSV
    for chunk in chunks:
        lines = chunk.count(b"\n")
        yield chunk, lines - (has_heading and lines > 0)
        has_heading = has_heading and not lines


def _join_array(chunks: Iterator[bytes]) -> Generator[tuple[bytes, int]]:
    """Convert JSON lines to one JSON array. Yield the array in chunks, each with the number of its entries."""
    separator = b"[\n"
    for line in split_lines(chunks):
        yield separator + line, 1
        separator = b",\n"
    yield (b"[]\n" if separator == b"[\n" else b"\n]\n"), 0


class _Progress:
    """Progress of an export, shown on the terminal if a `bar` is given."""

    def __init__(self, bar: Progress | None = None, total: int | None = None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("exporting", total=total)

    def advance(self, entries: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, entries)


@contextmanager
def _open_progress(client: GatewayClient, query: Query) -> Iterator[_Progress]:
    if not sys.stderr.isatty():
        yield _Progress()
        return
    # The gateway counts entries only without time filters, and only up to a few thousand. In other cases, the progress
    # bar shows no total.
    total = None if query.get("from") or query.get("to") else client.count(LOGS_PATH, query)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Progress(bar, total)
