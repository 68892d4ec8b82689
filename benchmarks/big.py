"""Very large database, filled directly: SQLite with `executemany`, PostgreSQL with `COPY`.

One organization is registered through the API and has more than half of the log, so that its page 100,000 exists. The
others share the rest evenly. Indexes of the log without a constraint are dropped meanwhile and created again at the end.
"""

import asyncio
import random
import sqlite3
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Protocol

import asyncpg

from toolgate_service.db.sqlite import sqlite_path

#: how far back the log goes, in microseconds
SPAN = 60 * 86_400 * 1_000_000
#: number of permissions of an agent
OF_AGENT = 20
#: percentage of the entries that belong to the large organization
LARGE = 55
STATUSES = ("success",) * 17 + ("failed", "denied", "pending")
CHUNK = 20_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Size:
    """Size of the database.

    Attributes:
        organizations: with the large one.
        permissions: of all agents together.
        entries: in the log.
    """

    organizations: int
    permissions: int
    entries: int


@dataclass(frozen=True, slots=True)
class Filled:
    """Values in the filled database, for requests.

    Attributes:
        asked: digests of keys, each with an agent and an action for a check.
        agents: some of the large organization's.
        actions: some of its actions.
    """

    asked: Sequence[tuple[str, str, str]]
    agents: Sequence[str]
    actions: Sequence[str]


class Target(Protocol):
    """A database that is filled."""

    def load(self, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write rows; `columns` are names, a space between two."""

    def moment(self, microseconds: int) -> object:
        """Return a moment as the database is given it."""

    def drop_indexes(self, table: str) -> list[str]:
        """Drop the indexes without a constraint, and return the statements that create them again."""

    def run(self, statement: str) -> None:
        """Run a statement."""


class IntoSqlite:
    """An SQLite file, written without care for its durability."""

    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(sqlite_path(url), isolation_level=None)
        self._second, self._prefix = -1, ""
        for pragma in (
            "journal_mode = OFF",
            "synchronous = OFF",
            "foreign_keys = OFF",
            "cache_size = -1000000",
            "temp_store = MEMORY",
        ):
            self._connection.execute(f"PRAGMA {pragma}")

    def load(self, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write rows; `columns` are names, a space between two."""
        names = columns.split()
        marks = ", ".join("?" * len(names))
        self._connection.execute("BEGIN")
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", rows)
        self._connection.execute("COMMIT")

    def moment(self, microseconds: int) -> object:
        """Return a moment as the database is given it."""
        second, rest = divmod(microseconds, 1_000_000)
        if second != self._second:
            self._second = second
            self._prefix = (EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._prefix}.{rest:06}Z"

    def drop_indexes(self, table: str) -> list[str]:
        """Drop the indexes without a constraint, and return the statements that create them again."""
        found = self._connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql LIKE 'CREATE INDEX%'",
            (table,),
        ).fetchall()
        for name, _ in found:
            self._connection.execute(f"DROP INDEX {name}")
        return [sql for _, sql in found]

    def run(self, statement: str) -> None:
        """Run a statement."""
        self._connection.execute(statement)

    def close(self) -> None:
        """Leave the file as the gateway has it."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.close()


class IntoPostgres:
    """PostgreSQL database; its user may disable triggers."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = self._finish(asyncpg.connect(url))
        for setting in (
            "session_replication_role = replica",
            "synchronous_commit = off",
            "maintenance_work_mem = '1GB'",
        ):
            self.run(f"SET {setting}")

    def load(self, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write rows; `columns` are names, a space between two."""
        copied = self._connection.copy_records_to_table(table, columns=columns.split(), records=rows)
        self._finish(copied)

    def moment(self, microseconds: int) -> object:
        """Return a moment as the database is given it."""
        return EPOCH + timedelta(microseconds=microseconds)

    def drop_indexes(self, table: str) -> list[str]:
        """Drop the indexes without a constraint, and return the statements that create them again."""
        query = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = $1 AND indexdef LIKE 'CREATE INDEX%'"
        found = self._finish(self._connection.fetch(query, table))
        for name, _ in found:
            self.run(f"DROP INDEX {name}")
        # For a partitioned table the definition contains ONLY, which would exclude the partitions.
        return [definition.replace(" ON ONLY ", " ON ") for _, definition in found]

    def run(self, statement: str) -> None:
        """Run a statement."""
        self._finish(self._connection.execute(statement))

    def close(self) -> None:
        """Update the planner statistics of the server, and close the connection."""
        self.run("VACUUM ANALYZE")
        self._finish(self._connection.close())
        self._loop.close()

    def _finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)


def fill(url: str, size: Size, organization_id: str, user_id: str, key: str) -> Filled:
    """Fill a migrated database in which one organization was registered.

    Args:
        url: where it is.
        size: how much there is to be.
        organization_id: the registered organization, which becomes the large one.
        user_id: its admin.
        key: its API key.
    """
    target = IntoSqlite(url) if url.startswith("sqlite") else IntoPostgres(url)
    with closing(target):
        return _Filling(target, size, organization_id, user_id, key).everything()


class _Filling:
    """The state of one filling."""

    def __init__(self, target: Target, size: Size, organization_id: str, user_id: str, key: str) -> None:
        self._target, self._size = target, size
        self._random = random.Random(1)
        self._now = (datetime.now(UTC) - EPOCH) // timedelta(microseconds=1)
        self._began = self._now - SPAN
        self._digest = sha256(key.encode()).hexdigest()
        others = size.organizations - 1
        # The large one was registered last: its id is the greatest, and the log is written in the key's order.
        self._organizations = [*(self._id(self._began + n) for n in range(others)), organization_id]
        self._users = [*(self._id(self._began + n) for n in range(others)), user_id]
        self._keys = [self._id(self._began + n) for n in range(size.organizations)]
        of_each = max(1, size.permissions // size.organizations // OF_AGENT)
        of_large = max(1, (size.permissions - others * of_each * OF_AGENT) // OF_AGENT)
        self._agents = [[self._id(self._began + n) for _ in range(of_each)] for n in range(others)]
        self._agents.append([self._id(self._now) for _ in range(of_large)])
        self._actions = [f"service{n}.operation" for n in range(OF_AGENT)]

    def everything(self) -> Filled:
        self._tenants()
        self._permissions()
        self._log()
        self._records()
        asked = [
            (self._digest_of(n), self._random.choice(self._agents[n]), self._random.choice(self._actions))
            for n in self._random.sample(range(len(self._agents)), min(len(self._agents), 2_000))
        ]
        return Filled(asked, self._agents[-1], self._actions)

    def _tenants(self) -> None:
        at = self._target.moment(self._began)
        others = range(self._size.organizations - 1)
        load = self._target.load
        load(
            "organizations",
            "id name slug plan is_active created_at",
            ((self._organizations[n], f"Number {n}", f"number-{n}", "enterprise", True, at) for n in others),
        )
        load(
            "environments",
            "organization_id name log_bytes",
            ((self._organizations[n], name, 0) for n in others for name in ("production", "test")),
        )
        load(
            "users",
            "id organization_id email password_hash role version created_at",
            (
                (self._users[n], self._organizations[n], f"u{n}@example.test", "-", "admin", 1, at)
                for n in others
            ),
        )
        load(
            "api_keys",
            "id organization_id environment digest ciphertext last_four created_by created_at",
            (
                (*self._of(self._keys, n), self._digest_of(n), b"-", "last", self._users[n], at)
                for n in others
            ),
        )
        load(
            "agents",
            "id organization_id environment name status created_by created_at",
            (
                (agent, self._organizations[n], "production", "agent", "active", self._users[n], at)
                for n, agents in enumerate(self._agents)
                for agent in agents
            ),
        )

    def _permissions(self) -> None:
        at = self._target.moment(self._began)
        self._target.load(
            "permissions",
            "id organization_id environment agent_id action requires_approval amount_required required_approvals "
            "separation_of_duties created_by created_at",
            (
                (
                    *(self._id(self._began + n), self._organizations[n], "production", agent, action),
                    *(False, False, 1, False, self._users[n], at),
                )
                for n, agents in enumerate(self._agents)
                for agent in agents
                for action in self._actions
            ),
        )

    def _log(self) -> None:
        made = self._target.drop_indexes("log_entries")
        self._target.load(
            "log_entries",
            "id organization_id environment agent_id action status context created_at key_id",
            self._entries(),
        )
        for statement in made:
            self._target.run(statement)
        month = datetime.now(UTC).strftime("%Y-%m")
        self._target.load(
            "monthly_usage",
            "organization_id environment month log_entries",
            ((self._organizations[n], "production", month, count) for n, count in self._shares()),
        )

    def _shares(self) -> Iterator[tuple[int, int]]:
        others, large = self._size.organizations - 1, self._size.entries * LARGE // 100
        each = (self._size.entries - large) // max(1, others)
        for n in range(others):
            yield n, each
        yield others, self._size.entries - each * others

    def _entries(self) -> Iterator[tuple[Any, ...]]:
        moment, any_of = self._target.moment, self._random.choice
        for n, count in self._shares():
            organization, key, agents = self._organizations[n], self._keys[n], self._agents[n]
            step = SPAN // max(1, count)
            for number in range(count):
                at = self._began + number * step
                context = (
                    f'{{"amount":{number % 977}.5,"charge_id":"ch_{number:012}","note":"sent to a customer"}}'
                )
                yield (
                    *(self._id(at), organization, "production", any_of(agents), any_of(self._actions)),
                    *(any_of(STATUSES), context, moment(at), key),
                )

    def _records(self) -> None:
        """Approvals, audit and deliveries of the large organization: a hundredth of the log each."""
        count = max(1, self._size.entries // 100)
        step, moment, mine = SPAN // count, self._target.moment, self._organizations[-1]
        places = [self._began + n * step for n in range(count)]
        tenant = (mine, "production")
        self._target.load(
            "approvals",
            "id organization_id environment agent_id permission_id action context digest run_id call_id status key_id "
            "required_approvals created_at expires_at consumed_call_id",
            (
                (
                    *(self._id(at), *tenant, self._random.choice(self._agents[-1]), self._id(at)),
                    *(
                        self._random.choice(self._actions),
                        "{}",
                        f"{n:064}",
                        "",
                        "",
                        "expired",
                        self._keys[-1],
                    ),
                    *(1, moment(at), moment(at + 3_600_000_000), ""),
                )
                for n, at in enumerate(places)
            ),
        )
        self._target.load(
            "audit_entries",
            "id organization_id environment user_id kind created_at",
            (
                (self._id(at), *tenant, self._users[-1], f"agent.kind{n % 7}", moment(at))
                for n, at in enumerate(places)
            ),
        )

    def _digest_of(self, n: int) -> str:
        last = n == self._size.organizations - 1
        return self._digest if last else sha256(b"%d" % n).hexdigest()

    def _of(self, ids: Sequence[str], n: int) -> tuple[str, str, str]:
        return ids[n], self._organizations[n], "production"

    def _id(self, microseconds: int) -> str:
        """Return an identifier of a moment, as the gateway makes them."""
        chance = self._random.getrandbits(74)
        text = f"{microseconds // 1000:012x}7{chance >> 62:03x}{1 << 63 | chance & (1 << 62) - 1:016x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
