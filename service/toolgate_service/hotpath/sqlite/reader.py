"""Reading what a check and a management request must know, from an SQLite file, on the event loop's own thread.

A thread hop costs ten times what the read does. Every row is fetched, always: an open cursor would keep an old snapshot,
and with it a revoked permission.
"""

import sqlite3
from collections.abc import Mapping

from toolgate_service.accounts.sign_in import SIGN_IN, SignIn
from toolgate_service.accounts.tokens import Claims
from toolgate_service.clock import utcnow, wire
from toolgate_service.hotpath.arrivals import Arrived, Ask, requests_a_minute
from toolgate_service.hotpath.rates import CountsNow
from toolgate_service.hotpath.standing import STANDING, Standing, numbered
from toolgate_service.plans import Plan
from toolgate_service.storage.sqlite import SqliteDatabase

#: KiB of pages kept in memory, of each connection. With the two megabytes that SQLite keeps by itself a check of a million
#: permissions would read most of them from the system, and an entry of many organizations takes three times as long.
CACHE = "PRAGMA cache_size = -65536"


class SqliteReader:
    """Reads over a read-only connection.

    Args:
        database: which file.
        windows: where requests are counted.
        plans: all plans by name.
    """

    def __init__(self, database: SqliteDatabase, windows: CountsNow, plans: Mapping[str, Plan]) -> None:
        self._path = database.path
        self._windows = windows
        self._plans = plans
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Connect; the schema must exist."""
        uri = f"{self._path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=16)
        self._connection.execute(CACHE)

    async def arrive(self, ask: Ask) -> Arrived | None:
        """Return what is true of a request, and count it; None for a key that is unknown or revoked."""
        standing = self.standing_now(ask.key_digest, ask.agent_id, ask.action)
        if standing is None:
            return None
        if not standing.organization_is_active:
            return standing, None
        limit = requests_a_minute(standing, self._plans)
        scope = f"{standing.environment}/{ask.surface}"
        return standing, self._windows.count_now(standing.organization_id, scope, limit)

    async def standing(self, key_digest: str, agent_id: str = "", action: str = "") -> Standing | None:
        """Return what is true of a key, an agent and an action, and count nothing; None for an unknown or revoked key."""
        return self.standing_now(key_digest, agent_id, action)

    def standing_now(self, key_digest: str, agent_id: str, action: str) -> Standing | None:
        """Return what is true at this moment; None for a key that is unknown or revoked."""
        rows = self._open_connection().execute(_STANDING, (key_digest, agent_id, action)).fetchall()
        return Standing._make(rows[0]) if rows else None

    async def sign_in(self, claims: Claims) -> SignIn | None:
        """Return what a token stands for at this moment; None for one that has stopped working."""
        values = {
            "user_id": claims.user_id,
            "session_id": claims.session_id,
            "version": claims.version,
            "now": wire(utcnow()),
        }
        rows = self._open_connection().execute(SIGN_IN, values).fetchall()
        return SignIn._make(rows[0]) if rows else None

    async def still_pending(self, approval_id: str) -> bool:
        """Say whether an approval exists and waits for a decision."""
        values = (approval_id, wire(utcnow()))
        return bool(self._open_connection().execute(_STILL_PENDING, values).fetchall())

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError("the reader is not open")
        return self._connection


# Found by its place a value costs less than by its name.
_STANDING = numbered(STANDING, "?")

_STILL_PENDING = "SELECT 1 FROM approvals WHERE id = ? AND status = 'pending' AND expires_at > ?"
