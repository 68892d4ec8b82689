"""What the busiest routes, and every request of a user, ask of the database, past the sessions that everything else uses."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from toolgate_service.accounts.sign_in import SignIn
from toolgate_service.accounts.tokens import Claims
from toolgate_service.hotpath.arrivals import Arrived, Ask
from toolgate_service.hotpath.rates import MemoryWindows, RateWindows
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.plans import Plan
from toolgate_service.storage.database import Database, Usage
from toolgate_service.storage.sqlite import SqliteDatabase


class Reader(Protocol):
    """Reads what is true at this moment, nothing cached: a deleted permission is refused by the very next check."""

    async def open(self) -> None:
        """Connect; the schema must exist."""

    async def arrive(self, ask: Ask) -> Arrived | None:
        """Return what is true of a request, and count it; None for a key that is unknown or revoked."""

    async def standing(self, key_digest: str, agent_id: str = "", action: str = "") -> Standing | None:
        """Return what is true of a key, an agent and an action, and count nothing; None for an unknown or revoked key."""

    async def sign_in(self, claims: Claims) -> SignIn | None:
        """Return what a token stands for; None for one that has stopped working."""

    async def still_pending(self, approval_id: str) -> bool:
        """Say whether an approval exists and waits for a decision."""

    async def close(self) -> None:
        """Disconnect."""


class LogStore(Protocol):
    """Commits log entries; one batch at a time."""

    async def open(self) -> None:
        """Connect; the schema must exist."""

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait for this process's turn to write; entries that come meanwhile join the batch."""

    async def commit(self, entries: Sequence[NewEntry], *, wait: bool = False) -> Sequence[Outcome | None]:
        """Make entries durable and return one outcome each, in order.

        Args:
            entries: of any organizations; with `wait`, of one.
            wait: whether to wait for a lock that another gateway holds. Otherwise the outcome of its organization's
                entries may be None: nothing was done, and they are to be committed with `wait`.

        Raises:
            Exception: nothing of the batch is acknowledged.
        """

    async def close(self) -> None:
        """Disconnect."""


@runtime_checkable
class Pooled(Protocol):
    """Whatever has connections of its own."""

    def usage(self) -> Usage:
        """Return how its connections are used."""


@runtime_checkable
class RedisCounted(Protocol):
    """Whatever counts in Redis while that can be used."""

    @property
    def redis_in_use(self) -> bool:
        """Whether Redis is used at the moment."""


def usage_of(reader: Reader, windows: RateWindows, log_store: LogStore) -> Mapping[str, Usage]:
    """Return how the connections of those are used that have several, by what they are for."""
    named = {"requests": reader, "windows": windows, "entries": log_store}
    return {name: one.usage() for name, one in named.items() if isinstance(one, Pooled)}


def stores_of(
    database: Database, plans: Mapping[str, Plan], *, shared: bool = False, redis_url: str | None = None
) -> tuple[Reader, RateWindows, LogStore]:
    """Return the ways past the sessions that fit a database, not yet open.

    Args:
        database: the gateway's.
        plans: all plans by name.
        shared: whether other processes of this machine serve the same file.
        redis_url: where gateways on one PostgreSQL server share what is counted, if not in the database alone.
    """
    if isinstance(database, SqliteDatabase):
        from toolgate_service.hotpath.sqlite.log_store import SqliteLogStore
        from toolgate_service.hotpath.sqlite.reader import SqliteReader
        from toolgate_service.hotpath.sqlite.windows import FileWindows

        windows = FileWindows(database) if shared else MemoryWindows()
        return SqliteReader(database, windows, plans), windows, SqliteLogStore(database)
    from toolgate_service.hotpath.postgres.log_store import PostgresLogStore
    from toolgate_service.hotpath.postgres.reader import PostgresReader
    from toolgate_service.hotpath.postgres.windows import PostgresWindows
    from toolgate_service.storage.postgres import PostgresDatabase

    if isinstance(database, PostgresDatabase) and redis_url is not None:
        from toolgate_service.hotpath.redis.reader import SharedReader
        from toolgate_service.hotpath.redis.till import till_of
        from toolgate_service.hotpath.redis.windows import RedisWindows

        till = till_of(redis_url, database)
        return SharedReader(database, plans, till), RedisWindows(till), PostgresLogStore(database)
    if isinstance(database, PostgresDatabase):
        return PostgresReader(database, plans), PostgresWindows(database), PostgresLogStore(database)
    raise TypeError(f"no stores for a {type(database).__name__}")
