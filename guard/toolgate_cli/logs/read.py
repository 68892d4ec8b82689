"""``toolgate logs search`` and ``tail``."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any

import typer

from toolgate_cli.client import Management, ManagementError, Query
from toolgate_cli.credentials import explain, stored_login
from toolgate_cli.logs.entries import (
    PATH,
    Containing,
    Entry,
    Filters,
    From,
    OfAction,
    OfAgent,
    OfStatus,
    To,
    contains,
    moment,
    read_entry,
    span_query,
    stream_raw,
)
from toolgate_cli.options import Environment, InEnvironment
from toolgate_cli.output import Column, ascii_json, fail, print_table

_COLUMNS = (
    Column("time (UTC)", whole=True),
    Column("status", whole=True),
    Column("agent"),
    Column("action"),
    Column("context"),
)


def search(
    agent: OfAgent = None,
    action: OfAction = None,
    status: OfStatus = None,
    begins: From = None,
    ends: To = None,
    text: Containing = None,
    environment: InEnvironment = Environment.PRODUCTION,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="So many, newest first.")] = 50,
    offset: Annotated[
        int, typer.Option(min=0, max=10_000_000, help="Leave so many out: with --limit, the next page.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, in ASCII.")] = False,
) -> None:
    """List entries that match everything that is written, newest first."""
    span = span_query(begins, ends)
    rows: list[tuple[str, ...]] = []
    with stored_login() as management:
        query = Filters(agent, action, status, environment).query(management)
        with closing(stream_raw(management, query | span)) as everything:
            found = islice((raw for raw in everything if contains(raw, text)), offset, offset + limit)
            for raw in found:
                if as_json:
                    typer.echo(ascii_json(raw))
                else:
                    rows.append(read_entry(raw).cells)
            more = len(rows) == limit and _another(everything, text)
    if as_json:
        return
    if not rows:
        typer.echo(f"nothing there at {management.url}, {environment}")
        return
    print_table(_COLUMNS, rows)
    if more:
        typer.echo(f"and more; --offset {offset + limit} shows what follows")


def _another(everything: Any, text: str | None) -> bool:
    return any(contains(raw, text) for raw in everything)


#: An entry may appear behind a newer one: it has its moment before it is on disk, and gateways write side by side.
#: Each look goes back so far behind the newest; no transaction of a gateway takes longer.
OVERLAP = timedelta(seconds=35)

#: as far back as the first look goes for entries to begin with
_FARTHEST = 1_000

_Found = list[tuple[Entry, dict[str, Any]]]


class Following:
    """What was seen of a log so far.

    Args:
        management: the gateway.
        query: which entries are meant.
        text: only entries with this text in them.
        since: everything from then on is new; without it, what is there already is only begun with.
    """

    def __init__(
        self, management: Management, query: Query, text: str | None, since: datetime | None
    ) -> None:
        self._management = management
        self._query = query
        self._text = text
        self._since = since
        self._began = since is not None
        self._newest: datetime | None = None
        self._seen: dict[str, datetime] = {}

    def look(self, lines: int) -> list[dict[str, Any]]:
        """Return what is new, oldest first. What fails is begun anew by the next look: nothing was seen by it.

        Args:
            lines: how many entries the first look begins with.

        Raises:
            ManagementError: the gateway refused, did not answer, or answered with something else than entries.
        """
        found = self._since_last() if self._began else self._beginning(lines)
        new = [raw for entry, raw in found if entry.id not in self._seen and contains(raw, self._text)]
        if not self._began:
            new = new[:lines]
        self._remember(found)
        self._began = True
        return new[::-1]

    def _since_last(self) -> _Found:
        floor = self._since
        if self._newest is not None:
            floor = max(filter(None, (floor, _earlier(self._newest))))
        found: _Found = []
        for entry, raw in self._newest_first():
            if floor is not None and entry.created_at < floor:
                break
            found.append((entry, raw))
        return found

    def _beginning(self, lines: int) -> _Found:
        found: _Found = []
        matching = 0
        for entry, raw in self._newest_first():
            # Also what is not shown has been seen, as far back as the next look will go.
            enough = matching >= lines or len(found) >= _FARTHEST
            if found and enough and entry.created_at < _earlier(found[0][0].created_at):
                break
            found.append((entry, raw))
            matching += contains(raw, self._text)
        return found

    def _newest_first(self) -> Iterator[tuple[Entry, dict[str, Any]]]:
        for page in self._management.pages(PATH, self._query):
            for raw in page:
                yield read_entry(raw), raw

    def _remember(self, found: _Found) -> None:
        self._seen |= {entry.id: entry.created_at for entry, _ in found}
        if self._seen:
            self._newest = max(self._seen.values())
            floor = _earlier(self._newest)
            self._seen = {each: moment for each, moment in self._seen.items() if moment >= floor}


def _earlier(newest: datetime) -> datetime:
    return newest - OVERLAP


def tail(
    agent: OfAgent = None,
    action: OfAction = None,
    status: OfStatus = None,
    text: Containing = None,
    begins: From = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=1000, help="Begin with so many that are there already.")
    ] = 10,
    environment: InEnvironment = Environment.PRODUCTION,
    interval: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two looks at the gateway.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, in ASCII.")] = False,
) -> None:
    """Show each entry as it comes, until Ctrl-C: none is left out and none comes twice, also after an outage.

    With --from, everything since then is shown first.
    """
    since = moment(begins, "--from")
    with stored_login() as management:
        query = Filters(agent, action, status, environment).query(management)
        _say(f"following {management.url}, {environment}; Ctrl-C ends it")
        _Tail(Following(management, query, text, since), lines, as_json=as_json).go_on(interval)


class _Tail:
    """Prints what is new."""

    def __init__(self, following: Following, lines: int, *, as_json: bool) -> None:
        self._following = following
        self._lines = lines
        self._as_json = as_json
        self._away = False

    def go_on(self, interval: float) -> None:
        try:
            while True:
                self._look()
                time.sleep(interval)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    def _look(self) -> None:
        try:
            new = self._following.look(self._lines)
        except ManagementError as error:
            self._bear(error)
            return
        if self._away:
            _say("the gateway answers again")
        self._away = False
        for raw in new:
            typer.echo(ascii_json(raw) if self._as_json else "  ".join(read_entry(raw).cells).rstrip())

    def _bear(self, error: ManagementError) -> None:
        """Go on without a gateway for as long as it takes; nothing else gets better by waiting."""
        if not error.may_pass:
            fail(explain(error))
        if not self._away:
            _say(f"{error}; waiting for it to come back")
        self._away = True


def _say(words: str) -> None:
    # Not among what was asked for: a reader of the standard output wants entries alone.
    typer.echo(f"toolgate: {words}", err=True)
