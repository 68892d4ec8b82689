"""``toolgate outbox``: manage log entries that are stored on this machine until the gateway has received them."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolgate._settings import Place, load_place, load_settings
from toolgate.errors import ConfigurationError
from toolgate_cli.options import Yes
from toolgate_cli.output import Column, confirm, fail, print_table, sanitize, truncate
from toolgate_cli.renamed import RenamingGroup

if TYPE_CHECKING:
    from toolgate._outbox.recovery import StoredEntry

outbox = typer.Typer(
    name="outbox",
    cls=RenamingGroup,
    help="List, resend and delete log entries of this machine that the gateway has not received or has refused.",
    no_args_is_help=True,
)

_COLUMNS: Final = (
    Column("key", no_wrap=True),
    Column("state", no_wrap=True),
    Column("happened (UTC)", no_wrap=True),
    Column("action"),
    Column("status", no_wrap=True),
    Column("gateway"),
    Column("reason"),
)
_MAX_ROWS: Final = 100
#: number of characters of an entry's key that the table shows
_KEY_LENGTH: Final = 12
#: minimum number of characters of an entry's key with which a user can select the entry
_MIN_KEY_LENGTH: Final = 4
_SEND_SECONDS: Final = 60.0


@outbox.command("list")
def list_(
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of entries, oldest first. Default: 100; with --json, all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON, in ASCII.")] = False,
) -> None:
    """List log entries that were not sent, with their states.

    The entries of running processes are running or waiting: running if the tool is still running, waiting if the entry
    waits to be sent. The entries of ended processes are orphan or left: orphan if the outcome of the call is unknown,
    left if the entry is complete. Entries that the gateway refused are parked.
    """
    from toolgate._outbox.recovery import list_entries

    place, path = _find_folder()
    with _outbox_errors():
        found = list_entries(place)
    if as_json:
        shown = [
            {name: value for name, value in asdict(one).items() if name not in {"file", "row"}}
            for one in found[:limit]
        ]
        typer.echo(json.dumps(shown, ensure_ascii=True))
        return
    if not found:
        typer.echo(f"no unsent entries in {str(path)!r}")
        return
    print_table(_COLUMNS, (_row(one) for one in found[: limit or _MAX_ROWS]))
    counts = Counter(one.state for one in found)
    summary = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    typer.echo(f"{len(found):,} unsent entries in {str(path)!r}: {summary}")


@outbox.command()
def retry() -> None:
    """Send refused (parked) entries and entries of ended processes again, with the key in TOOLGATE_API_KEY."""
    from toolgate._outbox.delivery import BatchSender
    from toolgate._outbox.recovery import convert_shared_file, unpark_all
    from toolgate._outbox.sender import make_sender

    place, _ = _find_folder()
    try:
        settings = load_settings()
    except ConfigurationError as error:
        fail(str(error))
    # Without a handler, Python would print the SDK's warnings. The command itself reports a failure below, in one line.
    logging.getLogger("toolgate").addHandler(logging.NullHandler())
    with _outbox_errors():
        convert_shared_file(place)
        sender = make_sender(settings, place, lambda: BatchSender(settings, None))
        try:
            if not sender.knows_organization():
                fail(f"the gateway at {settings.url!r} does not accept log entries now; nothing was changed")
            unparked = unpark_all(sender.outbox)
            is_done = sender.flush(_SEND_SECONDS)
            left = len(sender)
        finally:
            sender.stop(1.0)
            sender.outbox.close()
    typer.echo(f"tried to send {unparked:,} parked entries again")
    if not is_done:
        fail(f"{left:,} entries are still unsent; see: toolgate outbox list")
    typer.echo(
        "all other entries were sent; entries that the gateway refused again stay in the outbox as parked"
    )


@outbox.command("drop", hidden=True)
@outbox.command()
def purge(
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY", help="An entry's key, or its first characters, if no other key begins with them."
        ),
    ] = None,
    parked: Annotated[
        bool, typer.Option("--parked", help="Delete all parked entries, which the gateway refused.")
    ] = False,
    gateway: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Delete all entries for the gateway at this address, such as a gateway that was removed.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete unsent entries permanently, except those of calls that are running."""
    from toolgate._outbox.recovery import drop_entries, list_entries

    if bool(keys) + parked + (gateway is not None) != 1:
        fail(
            "choose the entries in exactly one way: by keys, --parked or --gateway URL; see: toolgate outbox list"
        )
    place, _ = _find_folder()
    with _outbox_errors():
        found = [one for one in list_entries(place) if one.state != "running"]
        chosen: list[StoredEntry]
        if parked:
            chosen = [one for one in found if one.state == "parked"]
        elif gateway is not None:
            chosen = [one for one in found if one.url == gateway.rstrip("/")]
        else:
            chosen = [_find_entry(key, found) for key in dict.fromkeys(keys or ())]
        if not chosen:
            fail("there is nothing to delete; see: toolgate outbox list")
        confirm(f"Delete {len(chosen):,} log entries that the gateway has not received?", yes=yes)
        deleted = drop_entries(chosen)
    typer.echo(f"deleted {deleted:,} log entries")


def _row(entry: "StoredEntry") -> tuple[str, ...]:
    return (
        entry.key[:_KEY_LENGTH],
        entry.state,
        sanitize(entry.occurred_at[:19].replace("T", " ")),
        truncate(sanitize(entry.action)),
        sanitize(entry.status),
        truncate(sanitize(entry.url)),
        sanitize(entry.reason or ""),
    )


def _find_entry(key: str, found: "list[StoredEntry]") -> "StoredEntry":
    matching = [one for one in found if len(key) >= _MIN_KEY_LENGTH and one.key.startswith(key)]
    if len(matching) != 1:
        count = "no entry" if not matching else f"{len(matching):,} entries"
        fail(f"{key!r} matches {count} that can be deleted; see: toolgate outbox list --json")
    return matching[0]


def _find_folder() -> tuple[Place, Path]:
    from toolgate._outbox.recovery import has_outbox

    try:
        place = load_place()
    except ConfigurationError as error:
        fail(str(error))
    if place.path is None:
        fail(
            "TOOLGATE_OUTBOX is 'memory': unsent entries exist only in the memory of the agents' "
            "processes, so this command cannot read them"
        )
    if not has_outbox(place):
        fail(f"there is no outbox at {str(place.path)!r}; no agent of this user has logged a call there")
    return place, place.path


@contextmanager
def _outbox_errors() -> Iterator[None]:
    from toolgate._outbox import Busy, OutboxFault

    try:
        yield
    except OutboxFault as fault:
        fail(str(fault))
    except Busy:
        fail("another process is writing the outbox; try again")
