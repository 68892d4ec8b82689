"""Auth store for SQLite. It reads on the thread of the event loop: a read takes a tenth of the time of a thread switch.

A context contains the API key, the agent and the permission of a request. The store caches contexts. Each environment
has an epoch number, which every change that affects contexts increments. While the epoch is unchanged, the store uses
the cached context, because comparing the epoch takes 4 µs, and reading a context 15 µs.

Every query fetches all its rows, because an open cursor would keep an old snapshot, in which a revoked permission still
exists.
"""

import asyncio
import sqlite3
from collections.abc import Mapping

from toolgate_service.accounts.sessions import ACTIVE_SESSION_SQL, ActiveSession, TokenClaims
from toolgate_service.context import AUTH_CONTEXT_SQL, AuthContext, AuthResult, ContextCache
from toolgate_service.core.clock import utcnow, wire
from toolgate_service.core.plans import Plan
from toolgate_service.db.sqlite import SqliteDatabase
from toolgate_service.rate_limit.limiter import ImmediateRateLimiter, Surface

#: Sets the page cache of a connection to 64 MiB. With SQLite's default of 2 MiB, a check in a database with a million
#: permissions reads most pages from the operating system, and with many organizations a log entry takes three times as
#: long.
CACHE = "PRAGMA cache_size = -65536"

_KEY = """
SELECT k.id, k.agent_id, k.organization_id, k.environment, o.is_active, o.plan, o.requests_per_minute, o.ip_allow_list,
       (SELECT epoch FROM epochs e WHERE e.organization_id = k.organization_id AND e.environment = k.environment),
       k.advisory
FROM api_keys k JOIN organizations o ON o.id = k.organization_id
WHERE k.digest = ? AND k.revoked_at IS NULL
"""

# Replace the named parameters of the query by positional parameters, because sqlite3 binds positional ones faster.
_CONTEXT = AUTH_CONTEXT_SQL.replace(":key_digest", "?1").replace(":agent_id", "?2").replace(":action", "?3")
_EPOCH = "SELECT epoch FROM epochs WHERE organization_id = ? AND environment = ?"
_NO_EPOCH = -1
_PENDING = "SELECT 1 FROM approvals WHERE id = ? AND status = 'pending' AND expires_at > ?"


class SqliteAuthStore:
    """Auth store for SQLite, with one read-only connection.

    Args:
        database: The database.
        limiter: Rate limiter that counts the requests.
        plans: All plans by name.
    """

    def __init__(
        self, database: SqliteDatabase, limiter: ImmediateRateLimiter, plans: Mapping[str, Plan]
    ) -> None:
        self._path = database.path
        self._limiter = limiter
        self._plans = plans
        self._cache = ContextCache()
        #: epochs (versions of the data) that were read in the current iteration of the event loop, by organization and
        #: environment
        self._epochs: dict[tuple[str, str], int] = {}
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Connect to the database, whose schema must exist."""
        uri = f"{self._path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=16)
        self._connection.execute(CACHE)

    async def authenticate(self, key_digest: str, surface: Surface) -> AuthResult | None:
        """Count a request with an API key, and return its context and the state of its rate limit.

        The result is None if the key is not valid. If the organization is not active, the request is not counted, and
        the state of the rate limit is None.
        """
        context = self._cache.find(key_digest)
        if context is None or not self._is_current(context):
            context = self._read_key(key_digest)
        if context is None:
            return None
        if not context.organization_is_active:
            return context, None
        scope = f"{context.environment}/{surface}"
        limit = context.rate_limit(self._plans)
        return context, self._limiter.count_now(context.organization_id, scope, limit)

    async def load(
        self,
        key_digest: str,
        agent_id: str = "",
        action: str = "",
        *,
        epoch: int | None = None,
    ) -> AuthContext | None:
        """Return the context of an API key, an agent and an action; None if the key is unknown or revoked.

        `epoch` is a version number of the environment's data. If it is given, a cached context with this or a later
        version is returned without a database read.
        """
        cached = self._cache.find_since(epoch, key_digest, agent_id, action)
        if cached is not None:
            return cached
        rows = self._opened().execute(_CONTEXT, (key_digest, agent_id, action)).fetchall()
        if not rows:
            return None
        context = AuthContext._make(rows[0])
        self._cache.store(key_digest, agent_id, action, context)
        return context

    async def sign_in(self, claims: TokenClaims) -> ActiveSession | None:
        """Return the session of a user's token; None if the session has ended."""
        values = {
            "user_id": claims.user_id,
            "session_id": claims.session_id,
            "version": claims.version,
            "now": wire(utcnow()),
        }
        rows = self._opened().execute(ACTIVE_SESSION_SQL, values).fetchall()
        return ActiveSession._make(rows[0]) if rows else None

    async def is_pending(self, approval_id: str) -> bool:
        """Return whether an approval request exists and is pending."""
        return bool(self._opened().execute(_PENDING, (approval_id, wire(utcnow()))).fetchall())

    def usage(self) -> None:
        """Return None, because the store has no connection pool."""

    async def close(self) -> None:
        """Close the connection to the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_current(self, context: AuthContext) -> bool:
        values = (context.organization_id, context.environment)
        epoch = self._epochs.get(values)
        if epoch is None:
            rows = self._opened().execute(_EPOCH, values).fetchall()
            epoch = self._epochs[values] = rows[0][0] if rows else _NO_EPOCH
            # Forget the epochs in the next iteration of the event loop. Requests that are served in the current
            # iteration arrived before this read, so they may share its result. Later requests read the epoch again.
            asyncio.get_running_loop().call_soon(self._epochs.clear)
        return epoch == context.epoch

    def _read_key(self, key_digest: str) -> AuthContext | None:
        rows = self._opened().execute(_KEY, (key_digest,)).fetchall()
        if not rows:
            return None
        *columns, epoch, is_advisory = rows[0]
        context = AuthContext(*columns)._replace(epoch=epoch, is_advisory=is_advisory)
        self._cache.store(key_digest, "", "", context)
        return context

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError("the store is not open")
        return self._connection
