"""Cost of size: the same requests to a very large database and to an almost empty one, in turn.

The statement of the check may take at most twice as long, and page 100,000 of the log one and a half times as long as
page 1. Other figures are only printed. Figures are medians of interleaved pairs, with 95 % intervals by resampling.

Run it with `make bench-scale`; it needs minutes and some ten gigabytes, and removes what it wrote.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import big
from pydantic import SecretStr
from sqlmodel.ext.asyncio.session import AsyncSession
from support.databases import Server
from support.gateway import PASSWORD, SECRET
from support.inside import InsideGateway
from support.postgres import Cluster
from support.postgres_versions import preferred

from toolgate_service.accounts.sessions import Caller
from toolgate_service.agents.service import list_agents
from toolgate_service.approvals.repository import list_approvals
from toolgate_service.audit.repository import list_audit
from toolgate_service.billing.service import count_usage
from toolgate_service.core.settings import Settings
from toolgate_service.db.pagination import Page, Position, newest_first
from toolgate_service.gateway import Gateway
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.repository import Filters, list_entries, list_page, matching
from toolgate_service.logs.service import TextMatcher, search

PAGE = 50
DEEP = 100_000
MOST_CHECK, MOST_PAGE = 2.0, 1.5
#: PostgreSQL as an operator would set it up for so much
SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "wal_level": "minimal",
    "max_wal_senders": 0,
    "checkpoint_timeout": "30min",
}


@dataclass(frozen=True, slots=True)
class Side:
    """A database to be asked.

    Attributes:
        gateway: what asks it; its background jobs do not run.
        organization_id: the registered organization.
        asked: digests of keys, each with an agent and an action.
        agents: of the organization.
    """

    gateway: Gateway
    organization_id: str
    asked: Sequence[tuple[str, str, str]]
    agents: Sequence[str]

    def page(self, after: Position | None = None) -> Page:
        """Return what asks for a page of fifty."""
        return Page(PAGE, 0, after, "/", (), self.organization_id, b"")


Ask = Callable[[], Awaitable[object]]


async def timed(ask: Ask) -> float:
    """Return for how many seconds an answer is waited for."""
    began = time.perf_counter()
    await ask()
    return time.perf_counter() - began


async def in_turn(pairs: int, left: Ask, right: Ask) -> tuple[list[float], list[float]]:
    """Time two in turn, which goes first changing from pair to pair, without the first tenth."""
    took: tuple[list[float], list[float]] = ([], [])
    for pair in range(pairs + pairs // 10):
        for which in (0, 1) if pair % 2 else (1, 0):
            took[which].append(await timed((left, right)[which]))
    return took[0][pairs // 10 :], took[1][pairs // 10 :]


def compared(name: str, took: tuple[list[float], list[float]], most: float | None = None) -> bool:
    """Print the medians and their ratio, right to left; return True if the ratio is within the bound."""
    left, right = took
    ratio = statistics.median(right) / statistics.median(left)
    chance = random.Random(1)
    pairs = list(zip(left, right, strict=True))
    found = []
    for _ in range(400):
        drawn = chance.choices(pairs, k=len(pairs))
        found.append(statistics.median(b for _, b in drawn) / statistics.median(a for a, _ in drawn))
    found.sort()
    bound = "" if most is None else f", at most {most}: {'held' if ratio <= most else 'MISSED'}"
    print(
        f"{name:42} {statistics.median(left) * 1e6:9.0f} us {statistics.median(right) * 1e6:9.0f} us "
        f"{ratio:6.2f} x [{found[9]:.2f}, {found[389]:.2f}]{bound}",
        flush=True,
    )
    return most is None or ratio <= most


def checks(side: Side, callers: int) -> Ask:
    """Return a function that runs the statement of the check for a random caller."""
    chance, asked = random.Random(2), side.asked[:callers]

    async def ask() -> None:
        key, agent, action = chance.choice(asked)
        context = await side.gateway.auth_store.load(key, agent, action)
        assert context is not None, "a key that was made is not there"
        assert context.permission_id, "a permission that was made is not there"

    return ask


def lists(side: Side) -> Iterator[tuple[str, Ask]]:
    """Yield what the lists ask, by name: a page each."""
    caller, mine = _caller(side), (side.organization_id, "production")
    some = {"agent_id": side.agents[0], "status": "denied", "action": "service3.operation"}
    for names in ((), ("agent_id",), ("status",), ("action",), tuple(some)):
        filters = Filters(**{name: some[name] for name in names})
        dated = replace(filters, begins=datetime(2020, 1, 1, tzinfo=UTC))
        yield f"log by {', '.join(names) or 'nothing'}", _listing(side, filters, side.page())
        yield (
            f"log leafed by {', '.join(names) or 'nothing'}",
            _reading(side, lambda session, asked=filters: list_page(session, *mine, asked, None, PAGE)),
        )
        yield (
            f"log searched by {', '.join(names) or 'nothing'}",
            _reading(
                side, lambda session, asked=dated: search(session, *mine, asked, TextMatcher("é"), None, PAGE)
            ),
        )
    yield "agents", _reading(side, lambda session: list_agents(session, caller, "production", side.page()))
    for status in (None, "pending", "expired"):
        yield (
            f"approvals by {status or 'nothing'}",
            _reading(
                side,
                lambda session, status=status: list_approvals(
                    session, caller, "production", side.page(), status=status, agent_id=None, action=None
                ),
            ),
        )
    yield (
        "audit",
        _reading(
            side,
            lambda session: list_audit(
                session, caller.organization_id, "production", side.page(), kind=None, user_id=None
            ),
        ),
    )
    yield "usage", _reading(side, lambda session: count_usage(session, side.organization_id))


def _reading(side: Side, work: Callable[[AsyncSession], Awaitable[object]]) -> Ask:
    async def ask() -> None:
        async with side.gateway.database.reading() as session:
            await work(session)

    return ask


async def deep_place(side: Side) -> tuple[int, Position]:
    """Return the number of the deepest page that there is, up to page 100,000, and the place before it."""
    query = matching(side.organization_id, "production", Filters())
    async with side.gateway.database.exporting() as session:
        for number in (DEEP, DEEP // 10, DEEP // 100, DEEP // 1000):
            before = newest_first(query, LogEntry, None).offset((number - 1) * PAGE - 1).limit(1)
            found = (await session.exec(before)).first()
            if found is not None:
                return number, Position(found.created_at, found.id)
    raise SystemExit("the log is too short to have a hundred pages; ask for more entries")


async def measure(large: Side, small: Side, pairs: int) -> bool:
    """Print all figures, and return True if all bounds are met."""
    print(f"{'':42} {'almost empty':>12} {'large':>12}")
    one = (checks(side, 1) for side in (small, large))
    held = compared("the check's statement", await in_turn(pairs * 10, *one), MOST_CHECK)
    many = checks(large, len(large.asked))
    for _ in range(4 * len(large.asked)):
        # What comes from the disk for the first time is another matter.
        await many()
    compared(f"the same of {len(large.asked)} callers", await in_turn(pairs * 10, checks(small, 1), many))
    for (name, little), (_, much) in zip(lists(small), lists(large), strict=True):
        compared(name, await in_turn(pairs, little, much))
    number, place = await deep_place(large)
    print(f"{'':42} {'page 1':>12} {f'page {number}':>12}")
    statements = [_statement(large, after) for after in (None, place)]
    held &= compared("the statement of a page", await in_turn(pairs, *statements), MOST_PAGE)
    pages = [_listing(large, Filters(), large.page(after)) for after in (None, place)]
    return compared("a page, as it is answered", await in_turn(pairs, *pages), MOST_PAGE) and held


def _caller(side: Side) -> Caller:
    return Caller("", side.organization_id, "", 1, "admin", "full", "enterprise", True, None)


def _listing(side: Side, filters: Filters, page: Page) -> Ask:
    return _reading(side, lambda session: list_entries(session, _caller(side), "production", filters, page))


def _statement(side: Side, after: Position | None) -> Ask:
    query = newest_first(matching(side.organization_id, "production", Filters()), LogEntry, after)

    async def ask(session: AsyncSession) -> object:
        return (await session.exec(query.limit(PAGE + 1))).all()

    return _reading(side, ask)


def made(folder: Path, url: str, size: big.Size) -> tuple[str, str, big.Filled]:
    """Fill a database and return its URL, the id of its organization, and values for requests."""
    with InsideGateway(folder, database_url=url, maintenance_interval_seconds=6 * 3600) as gateway:
        body = {"email": "owner@example.test", "password": PASSWORD, "organization_name": "Large"}
        owner = gateway.send("POST", "/auth/register", json=body).json()
        headers = {"Authorization": f"Bearer {owner['access_token']}"}
        key = gateway.send("GET", "/api/organization", headers=headers).json()["api_key"]
    user, began = owner["user"], time.perf_counter()
    filled = big.fill(url, size, user["organization_id"], user["id"], key)
    print(
        f"{size.organizations} organizations, {size.permissions} permissions, {size.entries} log entries "
        f"in {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    return url, user["organization_id"], filled


async def opened(stack: AsyncExitStack, url: str, organization_id: str, filled: big.Filled) -> Side:
    """Open a filled database."""
    gateway = Gateway(Settings(database_url=url, secret=SecretStr(SECRET)))
    await gateway.database.start()
    stack.push_async_callback(gateway.database.close)
    await gateway.auth_store.open()
    stack.push_async_callback(gateway.auth_store.close)
    return Side(gateway, organization_id, filled.asked, filled.agents)


async def ask_both(pairs: int, *databases: tuple[str, str, big.Filled]) -> bool:
    """Open both databases, print all figures, and return True if all bounds are met."""
    async with AsyncExitStack() as stack:
        large, small = [await opened(stack, *one) for one in databases]
        return await measure(large, small, pairs)


def main() -> None:
    """Fill, ask, print; end with an error when a bound was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--organizations", type=int, default=10_000)
    parser.add_argument("--permissions", type=int, default=1_000_000)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--pairs", type=int, default=300)
    asked = parser.parse_args()
    size = big.Size(asked.organizations, asked.permissions, asked.entries)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-scale-")))
        if asked.database == "sqlite":
            urls = [f"sqlite:///{folder / name}.db" for name in ("large", "small")]
        else:
            server = Server(stack.enter_context(Cluster(preferred(), settings=SETTINGS)).url())
            urls = [server.url_of(server.create_database(migrated=False)) for _ in range(2)]
        large, small = (
            made(folder, url, of)
            for url, of in zip(urls, (size, big.Size(1, big.OF_AGENT, 100)), strict=True)
        )
        if not asyncio.run(ask_both(asked.pairs, large, small)):
            raise SystemExit("a bound was missed")


if __name__ == "__main__":
    main()
