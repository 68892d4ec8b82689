"""``toolgate logs search`` and ``tail``."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias

import typer

from toolgate_cli.client import GatewayClient, GatewayError, Outage, Query
from toolgate_cli.credentials import describe_error, stored_session
from toolgate_cli.logs.entries import (
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
    stream_entries,
    time_query,
)
from toolgate_cli.options import Environment, EnvironmentOption, JsonLines, PollInterval
from toolgate_cli.output import Column, print_json, print_note, print_table

#: Each poll reads the entries of this time span before the newest known entry again. The gateway sets the time of an
#: entry before it commits the transaction, so an entry can become visible after a newer entry. No transaction of the
#: gateway takes longer than this time span.
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
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of entries.")] = 50,
    offset: Annotated[
        int, typer.Option(min=0, max=10_000_000, help="Number of entries to skip, for further pages.")
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
        typer.echo(f"no entries at {client.url}, {environment}")
        return
    print_table(_COLUMNS, rows)
    if has_more:
        typer.echo(f"there are more; --offset {offset + limit} shows the next page")


def tail(
    agent: AgentFilter = None,
    action: ActionFilter = None,
    status: StatusFilter = None,
    text: TextFilter = None,
    begins: From = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=1000, help="Number of existing entries to begin with.")
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
        print_note(f"following {client.url}, {environment}; stop with Ctrl-C")
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
        #: maps the ids of entries that the next poll may read again to the times of these entries
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
