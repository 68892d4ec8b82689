"""SQLite file that contains the latest cosigned checkpoint of each log.

The guarantee of a witness, that it never cosigns two inconsistent checkpoints, depends on this file. The check of a
checkpoint and its storage are one transaction, so that threads and processes with the same file cannot both cosign.
"""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

_Result = TypeVar("_Result")

_BUSY_SECONDS: Final = 10.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS witness (verifier_key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS logs (
    origin TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    root BLOB NOT NULL,
    note TEXT NOT NULL
) WITHOUT ROWID;
"""


class StateError(Exception):
    """The state of a witness cannot be used; the message is one line that ends with the fix."""


class Cosigned(NamedTuple):
    """Latest cosigned checkpoint of a log.

    Attributes:
        note: the checkpoint with the signatures of the log and the witness.
    """

    size: int
    root: bytes
    note: str


class WitnessState:
    """Storage of the latest cosigned checkpoints.

    Args:
        path: the SQLite file; it is created if it does not exist.
        verifier_key: the verifier key of the witness. A file belongs to one key.

    Attributes:
        is_new: whether the file contained no state.

    Raises:
        StateError: the file belongs to another key, or cannot be opened.
    """

    def __init__(self, path: Path, verifier_key: str) -> None:
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                # With these two settings, a transaction is on the disk before COMMIT returns, also after a power loss.
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self.is_new = self._transact(lambda: self._bind(path, verifier_key))
            except BaseException:
                self._connection.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise StateError(
                f"cannot use {str(path)!r} as the state of a witness: {error}; use a file that the witness has created"
            ) from None

    def latest(self, origin: str) -> Cosigned | None:
        """Return the latest cosigned checkpoint of a log, or None if no checkpoint was cosigned."""
        with self._lock:
            return self._find(origin)

    def update(self, origin: str, decide: Callable[[Cosigned | None], Cosigned]) -> Cosigned:
        """Replace the latest checkpoint of a log, and return the new one after it is on the disk.

        Args:
            origin: origin of the log.
            decide: function that returns the new checkpoint for the current one. It runs inside the transaction; if it
                raises an exception, nothing is changed.

        Raises:
            sqlite3.Error: the checkpoint was not stored, or it is unknown whether it was stored.
        """

        def replace() -> Cosigned:
            cosigned = decide(self._find(origin))
            self._connection.execute("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?)", (origin, *cosigned))
            return cosigned

        return self._transact(replace)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _transact(self, work: Callable[[], _Result]) -> _Result:
        with self._lock:
            # IMMEDIATE locks the file before the read, so that no other process can write between the read and the
            # write of this transaction.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = work()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            return result

    def _bind(self, path: Path, verifier_key: str) -> bool:
        for statement in _SCHEMA.split(";"):
            self._connection.execute(statement)
        found = self._connection.execute("SELECT verifier_key FROM witness").fetchone()
        if found is None:
            self._connection.execute("INSERT INTO witness VALUES (?)", (verifier_key,))
        elif found[0] != verifier_key:
            raise StateError(
                f"{str(path)!r} is the state of the witness {found[0]}; use its key, or another --state FILE"
            )
        return found is None

    def _find(self, origin: str) -> Cosigned | None:
        row = self._connection.execute(
            "SELECT size, root, note FROM logs WHERE origin = ?", (origin,)
        ).fetchone()
        return row and Cosigned(*row)
