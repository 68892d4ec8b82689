"""The statements on an outbox. Each is one transaction; whoever calls holds the connection's lock."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from toolgate._outbox.place import Place
from toolgate._outbox.schema import PARKED, open_database

__all__ = ["Row", "Store", "Target"]

# States stand in the statements as they are in schema.py: 0 intent, 1 ready, 2 parked. The index of what is ready
# is used only where SQLite reads the number.
_T = TypeVar("_T")
_INSERT: Final = """
INSERT INTO entries (key, owner, target, state, bytes, body) SELECT ?, ?, ?, ?, ?, ?
WHERE (SELECT rows < ? AND bytes < ? FROM totals)
RETURNING id, (SELECT rows FROM totals), (SELECT bytes FROM totals)
"""
_UNBOUNDED: Final = 2**62
_FINISH: Final = "UPDATE entries SET state = 1, owner = ?, body = ? WHERE id = ? AND key = ? AND state = 0"
_FINISH_LARGER: Final = (
    "UPDATE entries SET state = 1, owner = ?, bytes = ?, body = ? WHERE id = ? AND key = ? AND state = 0"
)
_BATCH: Final = """
SELECT id, key, body FROM entries WHERE owner = ? AND old = ? AND state = 1 AND id > ? ORDER BY id LIMIT ?
"""
_WAITING: Final = "SELECT EXISTS (SELECT 1 FROM entries WHERE owner = ? AND state = 1)"
# A key belongs to one organization. Where that is not known, the same key is the same organization.
_ADOPT: Final = """
UPDATE entries SET owner = :owner, old = 1, state = 1 WHERE owner = :dead AND state <> 2 AND target IN (
    SELECT id FROM targets WHERE url = :url
        AND (organization = :organization AND environment = :environment
             OR organization IS NULL AND fingerprint = :fingerprint))
"""
_UNPARK: Final = """
UPDATE entries SET owner = :owner, old = 1, state = 1, reason = NULL WHERE state = 2 AND target IN (
    SELECT id FROM targets WHERE url = :url
        AND (organization = :organization AND environment = :environment
             OR organization IS NULL AND fingerprint = :fingerprint))
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where entries go, and for whom: under another they stay.

    Attributes:
        url: The gateway.
        fingerprint: What the API key leaves behind; the key cannot be had from it.
        environment: `production` or `test`.
        organization: The organization's id, once an answer named it.
    """

    url: str
    fingerprint: str
    environment: str
    organization: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """An entry that waits.

    Attributes:
        id: Its place.
        key: Its Idempotency-Key.
        body: What is sent, as JSON text.
    """

    id: int
    key: str
    body: str


class Store:
    """One connection to an outbox.

    Args:
        place: Where it is, and how much it holds.
    """

    def __init__(self, place: Place) -> None:
        self._connection = open_database(place)
        self._rows, self._bytes = place.rows, place.size

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __del__(self) -> None:
        # Made or not; whoever drops it has no more use for it.
        if connection := self.__dict__.get("_connection"):
            connection.close()

    def enter(self, token: str) -> int:
        """Write down a new owner and return its number."""
        added = self._run("INSERT INTO owners (token, pid) VALUES (?, ?)", (token, os.getpid()))
        return int(added.lastrowid or 0)

    def leave(self, owner: int) -> bool:
        """Strike out an owner, unless it has entries; returns whether it had none."""
        gone = self._run(
            "DELETE FROM owners WHERE id = ? AND NOT EXISTS (SELECT 1 FROM entries WHERE owner = ? AND state <> ?)",
            (owner, owner, PARKED),
        )
        return gone.rowcount > 0

    def target(self, target: Target) -> int:
        """The number of a target; entries of its key learn the organization."""

        def find() -> int:
            values = (target.url, target.fingerprint, target.environment)
            if target.organization is not None:
                self._run(
                    "UPDATE targets SET organization = ? WHERE url = ? AND fingerprint = ? AND environment = ? "
                    "AND organization IS NULL",
                    (target.organization, *values),
                )
            known = self._run(
                "SELECT id FROM targets WHERE url = ? AND fingerprint = ? AND environment = ? AND organization IS ?",
                (*values, target.organization),
            ).fetchone()
            if known is not None:
                return int(known[0])
            added = self._run(
                "INSERT INTO targets (url, fingerprint, environment, organization) VALUES (?, ?, ?, ?)",
                (*values, target.organization),
            )
            return int(added.lastrowid or 0)

        return self._whole(find)

    def insert(
        self,
        owner: int,
        target: int,
        state: int,
        key: str,
        body: str,
        size: int,
        *,
        bounded: bool = True,
    ) -> tuple[int, int, int] | None:
        """Keep an entry that counts so many bytes.

        Returns:
            Its place and how many entries and bytes there were before, or None when the outbox is full.
        """
        bounds = (self._rows, self._bytes) if bounded else (_UNBOUNDED, _UNBOUNDED)
        found = self._run(_INSERT, (key, owner, target, state, size, body, *bounds)).fetchall()
        return found[0] if found else None

    def finish(self, owner: int, place: int, key: str, body: str, size: int | None) -> bool:
        """Make an intent what became of it, for an owner to send; returns whether it was still there.

        Args:
            owner: Who sends it: whoever closed the outbox meanwhile has another number than when it began.
            place: Where it is.
            key: Its key.
            body: What became of it.
            size: What it counts from now on; None as before.
        """
        if size is None:
            return self._run(_FINISH, (owner, body, place, key)).rowcount > 0
        return self._run(_FINISH_LARGER, (owner, size, body, place, key)).rowcount > 0

    def batch(self, owner: int, *, old: bool, after: int, limit: int) -> list[Row]:
        """What an owner has to send, in order."""
        return [Row(*found) for found in self._run(_BATCH, (owner, old, after, limit)).fetchall()]

    def settle(self, rows: Iterable[Row]) -> None:
        """Remove what the gateway has."""
        values = [(row.id, row.key) for row in rows]
        self._whole(
            lambda: self._connection.executemany("DELETE FROM entries WHERE id = ? AND key = ?", values)
        )

    def park(self, rows: Sequence[tuple[Row, str]]) -> None:
        """Lay aside what the gateway never takes, with its reason."""
        values = [(PARKED, reason, row.id, row.key) for row, reason in rows]
        update = "UPDATE entries SET state = ?, reason = ? WHERE id = ? AND key = ?"
        self._whole(lambda: self._connection.executemany(update, values))

    def unpark(self, owner: int, target: Target) -> int:
        """Have what was laid aside, and goes where ours goes, sent once more; returns how many entries."""
        return self._run(_UNPARK, {"owner": owner, **asdict(target)}).rowcount

    def waits(self, owner: int) -> bool:
        """Whether an owner has something to send."""
        return bool(self._run(_WAITING, (owner,)).fetchone()[0])

    def count(self, owner: int) -> int:
        """How many entries an owner has to send."""
        statement = "SELECT count(*) FROM entries WHERE owner = ? AND state = 1"
        return int(self._run(statement, (owner,)).fetchone()[0])

    def bodies(self) -> list[str]:
        """What everybody has to send."""
        return [body for (body,) in self._run("SELECT body FROM entries WHERE state = 1", ()).fetchall()]

    def age(self, owner: int) -> None:
        """Whatever an owner has to send now has waited: it is sent at the pace of what is old."""
        self._run("UPDATE entries SET old = 1 WHERE owner = ? AND state = 1 AND old = 0", (owner,))

    def others(self, owner: int) -> list[tuple[int, str]]:
        """Numbers and names of the other owners."""
        found: list[tuple[int, str]] = self._run(
            "SELECT id, token FROM owners WHERE id <> ?", (owner,)
        ).fetchall()
        return found

    def adopt(self, dead: int, owner: int, target: Target) -> int:
        """Take over the entries of a dead owner that go where ours go; an intent becomes ready as it is."""
        return self._run(_ADOPT, {"dead": dead, "owner": owner, **asdict(target)}).rowcount

    def totals(self) -> tuple[int, int]:
        """How many entries there are, and how many bytes."""
        found: tuple[int, int] = self._run("SELECT rows, bytes FROM totals", ()).fetchone()
        return found

    def _run(self, statement: str, values: object) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)  # type: ignore[arg-type]  # a tuple or a mapping

    def _whole(self, work: Callable[[], _T]) -> _T:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = work()
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result
