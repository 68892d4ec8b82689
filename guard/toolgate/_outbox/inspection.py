"""Functions for `toolgate outbox`, which lists, retries and deletes entries in the outbox folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from toolgate._outbox.outbox import Outbox
from toolgate._outbox.place import Place
from toolgate._outbox.recovery import adopt_files, convert_shared_file, retrieve_parked
from toolgate._outbox.store import (
    INTENT,
    PARKED,
    READY,
    FileLock,
    delete_file,
    lock_path,
    open_file,
    outbox_files,
    read_target,
)

__all__ = ["State", "StoredEntry", "drop_entries", "has_outbox", "list_entries", "unpark_all"]

#: `running`: intent (entry without an outcome) of a running process: its tool may be running;
#: `waiting`: queued entry of a running process;
#: `orphan`: intent of a process that has ended;
#: `left`: queued entry of a process that has ended;
#: `parked`: entry that the gateway has rejected permanently
State: TypeAlias = Literal["running", "waiting", "orphan", "left", "parked"]

#: maps a state in an outbox file to two names: one for while the process that created the file runs, and one for after
#: that process has ended
_STATES: Final[dict[int, tuple[State, State]]] = {
    INTENT: ("running", "orphan"),
    READY: ("waiting", "left"),
    PARKED: ("parked", "parked"),
}


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """Summary of an entry in the outbox; it omits the context (arguments and details of the call).

    Attributes:
        file: The outbox file that contains the entry.
        row: Row id of the entry in this file.
        key: Idempotency-Key.
        state: State of the entry and of the process that stored it, see `State`.
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent.
        status: Status in the activity log.
        occurred_at: Time of the call.
        url: Address of the gateway that receives the entry.
        environment: `production` or `test`.
        organization: Id of the organization of the API key, or None if the gateway has not yet returned it.
        size: Size in bytes.
        reason: The gateway's reason for rejecting the entry, or None.
    """

    file: Path
    row: int
    key: str
    state: State
    action: str
    agent_id: str
    status: str
    occurred_at: str
    url: str
    environment: str
    organization: str | None
    size: int
    reason: str | None


def has_outbox(place: Place) -> bool:
    """Return whether an outbox exists on the disk: the folder, or the file that version 0.1 used."""
    path = place.path
    return path is not None and (path.exists() or path.with_name(f"{path.name}.db").exists())


def list_entries(place: Place) -> list[StoredEntry]:
    """Return all entries in the outbox folder, the oldest first.

    Raises:
        Busy: Another process is writing to a file of the folder.
        OutboxFault: A file of the folder cannot be read.
    """
    if place.path is None:
        return []
    convert_shared_file(place)
    found = [entry for file in outbox_files(place.path) for entry in _entries(file)]
    return sorted(found, key=lambda entry: entry.occurred_at)


def drop_entries(entries: Iterable[StoredEntry]) -> int:
    """Delete entries from their files, and return the number of deleted entries; keep those whose tool may be running.

    Raises:
        Busy: Another process is writing to one of the files.
        OutboxFault: One of the files cannot be written.
    """
    gone = 0
    for file, chosen in groupby(sorted(entries, key=lambda entry: entry.file), key=lambda entry: entry.file):
        # The process that created the file holds the file's lock until it ends. If the result is None, the lock is
        # held, so that process is still running.
        lock = FileLock.acquire(lock_path(file))
        try:
            with open_file(file) as connection:
                if connection is None:
                    continue
                for entry in chosen:
                    gone += connection.execute(
                        "DELETE FROM entries WHERE id = ? AND key = ? AND (state <> 0 OR ?)",
                        (entry.row, entry.key, lock is not None),
                    ).rowcount
                (left,) = connection.execute("SELECT rows FROM totals").fetchone()
            if lock is not None and not left:
                delete_file(file, lock)
        finally:
            if lock is not None:
                lock.release()
    return gone


def unpark_all(outbox: Outbox) -> int:
    """Queue all parked entries (which the gateway has rejected) again, and return their number.

    First, entries with the same target (gateway, organization and environment) are moved from the other files of the
    folder into the file of `outbox`. From files of running processes, only parked entries are moved; from files of
    processes that have ended, all entries are moved.
    """
    while (found := adopt_files(outbox, lambda: True)) is not None and found[0] and not found[1]:
        pass
    retrieve_parked(outbox)
    return outbox.unpark()


def _entries(file: Path) -> list[StoredEntry]:
    lock = FileLock.acquire(lock_path(file))
    if lock is not None:
        lock.release()
    with open_file(file) as connection:
        if connection is None:
            return []
        target = read_target(connection)
        rows = connection.execute(
            "SELECT id, key, state, bytes, reason, body FROM entries ORDER BY id"
        ).fetchall()
    found: list[StoredEntry] = []
    for row, key, state, size, reason, text in rows:
        body: dict[str, Any] = json.loads(text)
        found.append(
            StoredEntry(
                file=file,
                row=row,
                key=key,
                state=_STATES[state][lock is not None],
                action=str(body.get("action", "")),
                agent_id=str(body.get("agent_id", "")),
                status=str(body.get("status", "")),
                occurred_at=str(body.get("occurred_at", "")),
                url=target.url,
                environment=target.environment,
                organization=target.organization,
                size=size,
                reason=reason,
            )
        )
    return found
