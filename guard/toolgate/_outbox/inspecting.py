"""An outbox as a person looks at it: what is in it, whose it is, and striking some of it out."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from toolgate._outbox.faults import OutboxFault, explained
from toolgate._outbox.owners import claim
from toolgate._outbox.place import Place
from toolgate._outbox.schema import INTENT, PARKED, open_database

__all__ = ["Inspection", "Kept", "State"]

#: `running` and `waiting` are a live process's; `orphan` and `left` wait for one that takes them over
State: TypeAlias = Literal["running", "waiting", "orphan", "left", "parked"]

_ALL: Final = """
SELECT entries.id, entries.key, entries.state, entries.owner, entries.bytes, entries.reason, entries.body, targets.url,
       targets.environment, targets.organization
FROM entries JOIN targets ON targets.id = entries.target ORDER BY entries.id
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry in an outbox, without what it says about the call's arguments.

    Attributes:
        place: Where it is.
        key: Its Idempotency-Key.
        state: What it waits for.
        action: The action.
        agent_id: The agent.
        status: As the log will show it.
        occurred_at: When it happened.
        url: The gateway it goes to.
        environment: The environment there.
        organization: The organization there, if an answer named it.
        size: Its bytes.
        reason: Why the gateway never takes it, if it said so.
    """

    place: int
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


class Inspection:
    """Somebody looks into an outbox, in a `with` block.

    Args:
        place: Where it is.
        path: The same, which is a file.

    Raises:
        OutboxFault: It cannot be opened.
    """

    def __init__(self, place: Place, path: Path) -> None:
        self._path = path
        with self._told():
            self._connection = open_database(place)
            self._connection.execute("PRAGMA busy_timeout = 5000").fetchone()

    def kept(self) -> Iterator[Kept]:
        """Everything there is, in the order in which it was written down.

        Raises:
            OutboxFault: It cannot be read.
        """
        with self._told():
            living = self._living()
            for (
                row,
                key,
                state,
                owner,
                size,
                reason,
                body,
                url,
                environment,
                organization,
            ) in self._connection.execute(_ALL):
                said: dict[str, Any] = json.loads(body)
                yield Kept(
                    place=row,
                    key=key,
                    state=_state(state, alive=owner in living),
                    action=str(said.get("action", "")),
                    agent_id=str(said.get("agent_id", "")),
                    status=str(said.get("status", "")),
                    occurred_at=str(said.get("occurred_at", "")),
                    url=url,
                    environment=environment,
                    organization=organization,
                    size=size,
                    reason=reason,
                )

    def drop(self, entries: Iterable[Kept]) -> int:
        """Strike out entries, but none whose tool a live process may be running; returns how many.

        Raises:
            OutboxFault: They cannot be struck out.
        """
        with self._told():
            living = self._living()
            self._connection.execute("BEGIN IMMEDIATE")
            gone = sum(self._drop(entry, living) for entry in entries)
            self._connection.execute("COMMIT")
            return gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _drop(self, entry: Kept, living: set[int]) -> int:
        found = self._connection.execute(
            "SELECT state, owner FROM entries WHERE id = ? AND key = ?", (entry.place, entry.key)
        ).fetchone()
        if found is None or (found[0] == INTENT and found[1] in living):
            return 0
        return self._connection.execute("DELETE FROM entries WHERE id = ?", (entry.place,)).rowcount

    def _living(self) -> set[int]:
        living = set[int]()
        for number, token in self._connection.execute("SELECT id, token FROM owners").fetchall():
            dead = claim(self._path, token)
            if dead is None:
                living.add(number)
            else:
                dead.let_go()
        return living

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            fault = explained(error, self._path)
            if isinstance(fault, OutboxFault):
                raise fault from error
            raise OutboxFault(f"the outbox {str(self._path)!r} stays locked", "try again") from error


def _state(state: int, *, alive: bool) -> State:
    if state == PARKED:
        return "parked"
    if state == INTENT:
        return "running" if alive else "orphan"
    return "waiting" if alive else "left"
