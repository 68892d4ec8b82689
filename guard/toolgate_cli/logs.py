"""``toolgate logs``: search, follow and export the activity log."""

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from toolgate._files import replace_file
from toolgate_cli.client import GatewayClient, GatewayError, Outage, Query
from toolgate_cli.credentials import describe_error, stored_session
from toolgate_cli.log_entries import (
    EXPORT_PATH,
    LOGS_PATH,
    ActionFilter,
    AgentFilter,
    Filters,
    From,
    LogEntry,
    StatusFilter,
    TextFilter,
    To,
    contains_text,
    parse_entry,
    parse_moment,
    split_lines,
    stream_entries,
    time_query,
)
from toolgate_cli.options import Environment, EnvironmentOption, JsonLines, PollInterval
from toolgate_cli.output import Column, fail, print_json, print_note, print_table
from toolgate_cli.renamed import RenamingGroup

#: Each poll starts this long before the newest known entry, so it reads some entries again. This is necessary because
#: the gateway sets the time of an entry before it commits the transaction, so an entry can become visible after a newer
#: entry. No transaction of the gateway takes longer than this time span.
OVERLAP: Final = timedelta(seconds=35)

#: maximum number of entries that the first poll reads; entries within `OVERLAP` are always read
_MAX_FIRST_POLL: Final = 1_000
_COLUMNS: Final = (
    Column("time (UTC)", no_wrap=True),
    Column("status", no_wrap=True),
    Column("agent"),
    Column("action"),
    Column("context"),
)

_Found: TypeAlias = list[tuple[LogEntry, dict[str, Any]]]


def search(
    agent: AgentFilter = None,
    action: ActionFilter = None,
    status: StatusFilter = None,
    begins: From = None,
    ends: To = None,
    text: TextFilter = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of entries to show.")] = 50,
    offset: Annotated[
        int, typer.Option(min=0, max=10_000_000, help="Number of entries to skip, to show a later page.")
    ] = 0,
    as_json: JsonLines = False,
) -> None:
    """List entries that match all filters, newest first."""
    times = time_query(begins, ends)
    rows: list[tuple[str, ...]] = []
    with stored_session() as client:
        query = Filters(agent, action, status, environment).query(client)
        with closing(stream_entries(client, query | times)) as entries:
            matching = (one for one in entries if contains_text(one[1], text))
            for entry, raw in islice(matching, offset, offset + limit):
                if as_json:
                    print_json(raw)
                else:
                    rows.append(entry.cells)
            has_more = len(rows) == limit and any(True for _ in matching)
    if as_json:
        return
    if not rows:
        typer.echo(f"no entries in the {environment} environment at {client.url}")
        return
    print_table(_COLUMNS, rows)
    if has_more:
        typer.echo(f"there are more entries; --offset {offset + limit} shows the next page")


def tail(
    agent: AgentFilter = None,
    action: ActionFilter = None,
    status: StatusFilter = None,
    text: TextFilter = None,
    begins: From = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=1000, help="Number of existing entries to print first.")
    ] = 10,
    environment: EnvironmentOption = Environment.PRODUCTION,
    interval: PollInterval = 2.0,
    as_json: JsonLines = False,
) -> None:
    """Show each new entry once, until Ctrl-C; entries logged during an outage of the gateway are shown after it.

    With --from, all entries since then are shown first.
    """
    since = parse_moment(begins, "--from")
    with stored_session() as client:
        query = Filters(agent, action, status, environment).query(client)
        print_note(f"following the log of the {environment} environment at {client.url}; stop with Ctrl-C")
        follower, outage = Follower(client, query, text, since), Outage()
        try:
            while True:
                try:
                    new = follower.poll(lines)
                except GatewayError as error:
                    outage.report(error, describe_error(error))
                else:
                    outage.end()
                    for entry, raw in new:
                        if as_json:
                            print_json(raw)
                        else:
                            typer.echo("  ".join(entry.cells).rstrip())
                time.sleep(interval)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


class Follower:
    """Reader of new log entries; each call of `poll` returns the entries that no earlier call has returned.

    Args:
        client: the client of the gateway.
        query: the filters as query parameters.
        text: return only entries that contain this text.
        since: return all entries from this time on; None to begin with the newest entries.
    """

    def __init__(self, client: GatewayClient, query: Query, text: str | None, since: datetime | None) -> None:
        self._client = client
        self._query = query
        self._text = text
        self._since = since
        self._has_begun = since is not None
        self._newest: datetime | None = None
        #: entry id -> time of the entry, for entries that the next poll may return again
        self._seen: dict[str, datetime] = {}

    def poll(self, lines: int) -> _Found:
        """Return new entries, oldest first.

        After a poll that has raised an error, the next poll also returns the missed entries.

        Args:
            lines: maximum number of entries that the first poll returns; ignored if `since` was given.

        Raises:
            GatewayError: a request failed.
        """
        found = self._fetch_since_last() if self._has_begun else self._fetch_first(lines)
        new = [one for one in found if one[0].id not in self._seen and contains_text(one[1], self._text)]
        if not self._has_begun:
            new = new[:lines]
        self._remember(found)
        self._has_begun = True
        return new[::-1]

    def _fetch_since_last(self) -> _Found:
        floor = self._since
        if self._newest is not None:
            floor = max(filter(None, (floor, self._newest - OVERLAP)))
        found: _Found = []
        for entry, raw in self._newest_first():
            if floor is not None and entry.created_at < floor:
                break
            found.append((entry, raw))
        return found

    def _fetch_first(self, lines: int) -> _Found:
        found: _Found = []
        matching = 0
        for entry, raw in self._newest_first():
            # All entries within `OVERLAP` of the newest entry are fetched here, even if `lines` is reached. The next
            # poll reads this time span again, and would return entries that were not fetched here as new.
            is_enough = matching >= lines or len(found) >= _MAX_FIRST_POLL
            if found and is_enough and entry.created_at < found[0][0].created_at - OVERLAP:
                break
            found.append((entry, raw))
            matching += contains_text(raw, self._text)
        return found

    def _newest_first(self) -> Iterator[tuple[LogEntry, dict[str, Any]]]:
        for page in self._client.pages(LOGS_PATH, self._query):
            for raw in page:
                yield parse_entry(raw), raw

    def _remember(self, found: _Found) -> None:
        self._seen |= {entry.id: entry.created_at for entry, _ in found}
        if self._seen:
            self._newest = max(self._seen.values())
            floor = self._newest - OVERLAP
            self._seen = {each: moment for each, moment in self._seen.items() if moment >= floor}


class Format(StrEnum):
    """File format of an export."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"


_FORMAT_BY_SUFFIX: Final = {".csv": Format.CSV, ".json": Format.JSON}
_STDOUT: Final = "-"


def export(
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The path of the file to write, or - for standard output."
        ),
    ] = _STDOUT,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="The file format: JSON lines, one JSON array, or CSV. Default: the format that the "
            "file's extension indicates, otherwise JSON lines.",
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
            "logs export does not print to a terminal; name a file with --output, or use: toolgate logs search"
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
        fail(
            f"{str(path)!r} is not a regular file; choose another path, or write to standard output with --output -"
        )
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


logs = typer.Typer(
    name="logs",
    cls=RenamingGroup,
    help="Search, follow and export the log of tool calls.",
    no_args_is_help=True,
)
logs.command()(tail)
logs.command()(search)
logs.command()(export)
