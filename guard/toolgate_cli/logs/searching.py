"""``toolgate logs search``."""

from contextlib import closing
from itertools import islice
from typing import Annotated, Any

import typer

from toolgate_cli.approvals.options import Environment, InEnvironment
from toolgate_cli.approvals.pages import ascii_json
from toolgate_cli.conversation import stored_login
from toolgate_cli.logs.entries import read_entry, stream_raw
from toolgate_cli.logs.filters import (
    Containing,
    Filters,
    From,
    OfAction,
    OfAgent,
    OfStatus,
    To,
    contains,
    span_query,
)
from toolgate_cli.tables import Column, print_table

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
