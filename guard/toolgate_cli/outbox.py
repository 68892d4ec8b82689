"""``toolgate outbox``: log entries on this machine that the gateway does not have (docs/recording.md)."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolgate._outbox.place import Place, load_place
from toolgate.errors import ConfigurationError
from toolgate.settings import load_settings
from toolgate_cli.options import Yes
from toolgate_cli.output import Column, cell, fail, print_table, visible
from toolgate_cli.prompts import confirm

if TYPE_CHECKING:
    from toolgate._outbox.inspecting import Kept

outbox = typer.Typer(
    name="outbox",
    help="Log entries on this machine that the gateway does not have yet, or never took.",
    no_args_is_help=True,
)

_COLUMNS: Final = (
    Column("key", whole=True),
    Column("state", whole=True),
    Column("happened (UTC)", whole=True),
    Column("action"),
    Column("status", whole=True),
    Column("gateway"),
    Column("reason"),
)
_SHOWN: Final = 100
_KEY: Final = 12
_SHORTEST: Final = 4
_TO_SEND: Final = 60.0


@outbox.command("list")
def list_(
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="How many to show, the oldest first; 100 in a table, all as JSON."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON in ASCII.")] = False,
) -> None:
    """List what waits: running and waiting (of live processes), orphan and left (of dead ones), parked (refused)."""
    from toolgate._outbox.inspecting import Inspection

    place, path = _file()
    with _told(), Inspection(place, path) as inspection:
        found = list(inspection.kept())
    if as_json:
        shown = [
            {name: value for name, value in asdict(one).items() if name != "place"} for one in found[:limit]
        ]
        typer.echo(json.dumps(shown, ensure_ascii=True))
        return
    if not found:
        typer.echo(f"nothing waits in {str(path)!r}")
        return
    print_table(
        _COLUMNS,
        (
            (
                one.key[:_KEY],
                one.state,
                visible(one.occurred_at[:19].replace("T", " ")),
                cell(visible(one.action)),
                visible(one.status),
                cell(visible(one.url)),
                visible(one.reason or ""),
            )
            for one in found[: limit or _SHOWN]
        ),
    )
    counts = Counter(one.state for one in found)
    told = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    typer.echo(f"{len(found):,} in {str(path)!r}: {told}")


@outbox.command()
def retry() -> None:
    """Send once more what was parked, and what dead processes left, with the key of TOOLGATE_API_KEY."""
    from toolgate._outbox.delivery import BatchSender
    from toolgate._outbox.parts import Parts

    place, _ = _file()
    try:
        settings = load_settings()
    except ConfigurationError as error:
        fail(str(error))
    # What is wrong is said here, in one line.
    logging.getLogger("toolgate").addHandler(logging.NullHandler())
    with _told():
        parts = Parts(settings, place, lambda: BatchSender(settings, None))
        try:
            parts.outbox.count()
            if not parts.sender.knows_whose():
                fail(f"the gateway at {settings.url!r} takes no log entries now; nothing was changed")
            again = parts.outbox.unpark()
            done = parts.sender.flush(_TO_SEND)
            left = len(parts)
        finally:
            parts.close(1.0)
    typer.echo(f"{again:,} parked entries were tried again")
    if not done:
        fail(f"{left:,} entries still wait; see: toolgate outbox list")
    typer.echo("all that the gateway takes is sent; what it refused again is parked again")


@outbox.command()
def drop(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="An entry's key, or a beginning that names it alone."),
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="All that is parked.")] = False,
    gateway: Annotated[
        str | None,
        typer.Option(metavar="URL", help="All that was kept for a gateway, such as one that is gone."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Strike entries out: nobody will ever read of these calls. What a live process is running stays."""
    from toolgate._outbox.inspecting import Inspection

    if bool(keys) + parked + (gateway is not None) != 1:
        fail("write either keys, --parked or --gateway URL; see: toolgate outbox list")
    place, path = _file()
    with _told(), Inspection(place, path) as inspection:
        found = [one for one in inspection.kept() if one.state != "running"]
        chosen: list[Kept]
        if parked:
            chosen = [one for one in found if one.state == "parked"]
        elif gateway is not None:
            chosen = [one for one in found if one.url == gateway.rstrip("/")]
        else:
            chosen = [_named(key, found) for key in dict.fromkeys(keys or ())]
        if not chosen:
            fail("there is nothing to strike out; see: toolgate outbox list")
        confirm(f"Strike out {len(chosen):,} log entries that the gateway does not have?", yes=yes)
        gone = inspection.drop(chosen)
    typer.echo(f"struck out {gone:,} log entries")


def _named(key: str, found: "list[Kept]") -> "Kept":
    matching = [one for one in found if len(key) >= _SHORTEST and one.key.startswith(key)]
    if len(matching) != 1:
        many = "no entry" if not matching else f"{len(matching):,} entries"
        fail(f"{many} of the outbox can be struck out as {key!r}; see: toolgate outbox list --json")
    return matching[0]


def _file() -> tuple[Place, Path]:
    try:
        place = load_place()
    except ConfigurationError as error:
        fail(str(error))
    if place.path is None:
        fail("TOOLGATE_OUTBOX is 'memory': what waits is in the agents' processes, and nowhere else")
    if not place.path.exists():
        fail(f"there is no outbox at {str(place.path)!r}; no agent of this user has recorded anything there")
    return place, place.path


@contextmanager
def _told() -> Iterator[None]:
    from toolgate._outbox.faults import Busy, OutboxFault

    try:
        yield
    except OutboxFault as fault:
        fail(str(fault))
    except Busy:
        fail("the outbox is being written; try again")
