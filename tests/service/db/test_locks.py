"""Turns: whoever names the same one goes after the other, others at once."""

import asyncio
from pathlib import Path

import pytest
from sqlmodel import select
from support.databases import database_url

from toolgate_service.core.errors import StorageFault
from toolgate_service.db.database import ACCOUNTS, LOCK_TIMEOUT, Database, now, open_database
from toolgate_service.db.postgres import KeyedLocks
from toolgate_service.organizations.models import Organization


async def test_one_name_is_one_after_the_other() -> None:
    """Takers of one name never overlap, and go in the order in which they came."""
    locks, inside, order = KeyedLocks(), 0, []

    async def take(number: int) -> None:
        nonlocal inside
        async with locks.acquire(["a"]):
            inside += 1
            assert inside == 1
            order.append(number)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*map(take, range(20)))
    assert order == list(range(20))
    assert locks._locks == {}


async def test_other_names_do_not_wait() -> None:
    """Somebody else's turn is no reason to wait."""
    locks = KeyedLocks()
    async with locks.acquire(["a"]), asyncio.timeout(5), locks.acquire(["b"]):
        pass


async def test_several_names_are_taken_without_a_circle() -> None:
    """Two who name the same two, each in another order, never wait for each other for ever."""
    locks = KeyedLocks()

    async def take(*names: str) -> None:
        for _ in range(50):
            async with locks.acquire(names):
                await asyncio.sleep(0)

    async with asyncio.timeout(10):
        await asyncio.gather(take("a", "b"), take("b", "a"), take("b", "b", "a"))


async def test_whoever_gives_up_waiting_holds_nobody_up() -> None:
    """A cancelled taker leaves the queue."""
    locks = KeyedLocks()
    async with locks.acquire(["a"]):
        waiting = asyncio.create_task(locks.acquire(["a"]).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(5), locks.acquire(["a"]):
        pass
    assert locks._locks == {}


async def test_a_turn_begins_before_the_first_statement(tmp_path: Path) -> None:
    """Whoever waits is not inside yet: what it reads from elsewhere at its beginning, the one before has written."""
    first, second = [open_database(database_url(tmp_path)) for _ in range(2)]
    for gateway in (first, second):
        await gateway.start()
    file = tmp_path / "beside"
    file.write_text("old")

    async def read() -> str:
        async with second.writing("a"):
            return file.read_text()

    async with first.writing("a") as session:
        await session.exec(select(Organization.id))
        waiting = asyncio.create_task(read())
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert done == set()
        file.write_text("new")
    assert await waiting == "new"
    for gateway in (first, second):
        await gateway.close()


async def test_what_a_turn_found_stays_true_until_its_end(tmp_path: Path) -> None:
    """Two gateways that each add a row unless there is one leave one: the turn reaches across processes."""
    gateways = [open_database(database_url(tmp_path)) for _ in range(2)]
    for gateway in gateways:
        await gateway.start()
    made = await asyncio.gather(
        *(_add_unless_there(gateway, number) for number in range(5) for gateway in gateways)
    )
    assert sum(made) == 1
    for gateway in gateways:
        await gateway.close()


@pytest.mark.parametrize("holder", ["same gateway", "other gateway"])
async def test_a_turn_that_waits_past_its_deadline_fails(tmp_path: Path, holder: str) -> None:
    """It changes nothing, and the next turn is not delayed."""
    first, second = (open_database(database_url(tmp_path)) for _ in range(2))
    await first.start()
    await second.start()
    loop = asyncio.get_running_loop()
    async with (first if holder == "same gateway" else second).writing("a"):
        begun = loop.time()
        with pytest.raises(StorageFault):
            async with first.writing("a", until=begun + 0.2):
                raise AssertionError("the lock is held by another transaction")
        assert 0.19 <= loop.time() - begun < LOCK_TIMEOUT / 2
    async with asyncio.timeout(LOCK_TIMEOUT), first.writing("a", until=loop.time() + LOCK_TIMEOUT):
        pass
    for gateway in (first, second):
        await gateway.close()


@pytest.mark.postgresql_only("the operating system takes a dead process's locks of a file")
async def test_whoever_falls_silent_in_a_turn_loses_it(
    tmp_path: Path,
) -> None:
    """A gateway that is cut off in the middle of a turn keeps nobody waiting for long; an export may take its time."""
    silent, other = (open_database(database_url(tmp_path)) for _ in range(2))
    await other.start()
    turn = silent.writing("a")
    async with silent.exporting() as session:
        await turn.__aenter__()
        async with other.writing("a"):
            pass
        assert (await session.exec(select(Organization))).all() == []
    with pytest.raises(StorageFault):
        await turn.__aexit__(None, None, None)
    await other.close()
    await silent.close()


async def _add_unless_there(database: Database, number: int) -> bool:
    async with database.writing(ACCOUNTS, "another") as session:
        if (await session.exec(select(Organization))).first() is not None:
            return False
        name = f"made-{number}"
        session.add(
            Organization(
                id=f"0192f0c0-0000-7000-8000-{number:012}",
                name=name,
                slug=name,
                plan="free",
                created_at=now(session),
            )
        )
        return True
