"""Gateways that share their rate windows in Redis admit exactly the limit, whatever becomes of Redis (decisions §7)."""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.databases import database_url
from support.mailbox import free_port
from support.tills import at_once, in_one_minute, passed, replicas, so_far, turned, until_used
from support.valkey import Valkey
from support.waiting import eventually

from toolgate_service.errors import StorageFault
from toolgate_service.hotpath.postgres.windows import PostgresWindows
from toolgate_service.hotpath.rates import Rate, Window
from toolgate_service.hotpath.redis import server
from toolgate_service.hotpath.redis.pool import Turn
from toolgate_service.hotpath.redis.server import RedisServer
from toolgate_service.storage.postgres import PostgresDatabase

pytestmark = pytest.mark.postgresql_only("on a file the processes of one machine count in a file")

#: a block of it is five
LIMIT = 100
BLOCK = 5


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that a busy machine keeps waiting is not given up, and with it what lies in its pools."""
    monkeypatch.setattr(server, "PATIENCE", 30)
    monkeypatch.setattr(server, "CONNECTING", 30)


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A server of the test's own."""
    with Valkey(password="open-sesame") as valkey:
        yield valkey


async def test_two_count_down_together(tmp_path: Path, valkey: Valkey) -> None:
    """One after the other at either: each is told the next number, and the one too many is refused by both."""
    async with replicas(tmp_path, valkey.url, valkey.url) as tills:

        async def work(window: Window) -> list[Rate]:
            return [
                rate
                for number in range(LIMIT + 4)
                for rate in await at_once([tills[number % 2]], window, LIMIT)
            ]

        rates = await in_one_minute(tmp_path, work)
    assert [rate.remaining for rate in rates] == [*range(LIMIT - 1, -1, -1), 0, 0, 0, 0]
    assert [rate.exceeded for rate in rates] == [False] * LIMIT + [True] * 4


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_of_all_at_once_exactly_the_limit_passes(tmp_path: Path, valkey: Valkey, limit: int) -> None:
    """However many arrive at the same moment, wherever: neither one more nor one less."""
    async with replicas(tmp_path, valkey.url, valkey.url, valkey.url) as tills:
        for _ in range(5):
            rates = await in_one_minute(
                tmp_path, lambda window: at_once(tills, window, limit, 2 * limit + 40)
            )
            assert passed(rates) == limit
            assert {rate.remaining for rate in rates if rate.exceeded} == {0}


async def test_what_another_draws_is_waited_for(
    tmp_path: Path, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a block is on its way into the pool nobody is refused who may have one of it."""
    async with replicas(tmp_path, valkey.url, valkey.url) as (slow, quick):
        draw, drawn, go_on = slow._till._bank.draw, asyncio.Event(), asyncio.Event()

        async def drawn_slowly(*given: object) -> object:
            result = await draw(*given)  # type: ignore[arg-type]  # whatever it was given
            drawn.set()
            await go_on.wait()
            return result

        async def work(window: Window) -> list[Rate]:
            drawn.clear(), go_on.clear()
            monkeypatch.setattr(slow._till._bank, "draw", drawn_slowly)
            first = asyncio.ensure_future(at_once([slow], window, LIMIT))
            await drawn.wait()
            rates = await at_once([quick], window, LIMIT, LIMIT - BLOCK)
            last = asyncio.ensure_future(at_once([quick], window, LIMIT, BLOCK))
            await asyncio.wait([last], timeout=0.1)
            waits = not last.done()
            go_on.set()
            rates = [*rates, *await first, *await last]
            assert waits or turned(rates)
            return rates

        rates = await in_one_minute(tmp_path, work)
    assert passed(rates) == LIMIT
    assert len(rates) == LIMIT + 1


async def test_nobody_waits_for_one_who_died_while_drawing(tmp_path: Path, valkey: Valkey) -> None:
    """A replica that meant to draw, and was never heard of again, delays a refusal by a second, and no other request."""
    async with replicas(tmp_path, valkey.url, valkey.url) as (dead, alive):

        async def work(window: Window) -> list[Rate]:
            await (await dead._till.ask({window: 1})).asked.replies()
            began = time.monotonic()
            rates = await at_once([alive], window, LIMIT, LIMIT)
            so_far(rates, LIMIT)
            rates += await at_once([alive], window, LIMIT)
            assert time.monotonic() - began < 10
            return rates

        assert passed(await in_one_minute(tmp_path, work)) == LIMIT


async def test_without_redis_the_database_counts(tmp_path: Path) -> None:
    """Whoever never reached a Redis admits exactly the limit too."""
    nowhere = f"redis://127.0.0.1:{free_port()}"
    async with replicas(tmp_path, nowhere, nowhere) as tills:
        rates = await in_one_minute(tmp_path, lambda window: at_once(tills, window, LIMIT, LIMIT + 50))
    assert passed(rates) == LIMIT


async def test_one_that_is_cut_off_counts_with_the_others(tmp_path: Path, valkey: Valkey) -> None:
    """What it draws by itself is not there for the others, and what lies in the pool is not lost to them."""
    nowhere = f"redis://127.0.0.1:{free_port()}"
    async with replicas(tmp_path, nowhere, valkey.url) as (cut_off, joined):

        async def work(window: Window) -> Sequence[Rate]:
            rates = await at_once([cut_off, joined], window, LIMIT, LIMIT - 10)
            so_far(rates, LIMIT - 10)
            rates += await at_once([cut_off], window, LIMIT, LIMIT)
            return rates + await at_once([joined], window, LIMIT, LIMIT)

        assert passed(await in_one_minute(tmp_path, work)) == LIMIT


async def test_one_that_was_not_told_of_redis_counts_with_the_others(tmp_path: Path, valkey: Valkey) -> None:
    """While gateways are given the setting one by one, all of them together admit no more, and no less."""
    database = PostgresDatabase(database_url(tmp_path))
    untold = PostgresWindows(database)
    await untold.open()
    try:
        async with replicas(tmp_path, valkey.url) as [told]:
            rates = await in_one_minute(
                tmp_path, lambda window: at_once([untold, told], window, LIMIT, 3 * LIMIT)
            )
    finally:
        await untold.close()
        await database.close()
    assert passed(rates) == LIMIT


@pytest.mark.parametrize("remembers", [False, True])
async def test_one_that_dies_and_comes_back_opens_nothing(
    tmp_path: Path, valkey: Valkey, remembers: bool
) -> None:
    """Killed in the middle of a minute, back empty or with what a disk still held: requests go on, none too many."""
    async with replicas(tmp_path, valkey.url, valkey.url) as tills:

        async def work(window: Window) -> Sequence[Rate]:
            rates = await at_once(tills, window, LIMIT, 32)
            before = await everything_in(valkey)
            # Of what lies in the pool all but one is used after the copy was made.
            rates += await at_once(tills[:1], window, LIMIT, 2)
            valkey.kill()
            rates += await at_once(tills, window, LIMIT, 20)
            so_far(rates, 54)
            valkey.start()
            if remembers:
                await put_into(valkey, before)
            await asyncio.gather(*map(until_used, tills))
            return rates + await at_once(tills, window, LIMIT, 2 * LIMIT)

        rates = await in_one_minute(tmp_path, work)
    # What lay in the pool when it died is not given out: a block, and what was drawn for one another at once.
    assert LIMIT - 4 * BLOCK <= passed(rates) <= LIMIT


async def test_one_that_falls_silent_keeps_nobody_waiting_for_long(
    tmp_path: Path, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts and says nothing: a moment later the database counts, and again Redis when it speaks."""
    monkeypatch.setattr(server, "PATIENCE", 0.4)
    async with replicas(tmp_path, valkey.url, valkey.url) as tills:

        async def work(window: Window) -> Sequence[Rate]:
            rates = await at_once(tills, window, LIMIT, 20)
            valkey.fall_silent()
            async with asyncio.timeout(10):
                rates += await at_once(tills, window, LIMIT, 20)
                rates += await at_once(tills, window, LIMIT, 20)
            so_far(rates, 60)
            valkey.speak_again()
            await asyncio.gather(*map(until_used, tills))
            return rates + await at_once(tills, window, LIMIT, LIMIT)

        rates = await in_one_minute(tmp_path, work)
    assert LIMIT - 40 <= passed(rates) <= LIMIT


async def test_a_limit_that_is_changed_holds_at_once(tmp_path: Path, valkey: Valkey) -> None:
    """Lowered in the middle of a minute, what lies in the pool opens nothing; raised, the rest is there."""
    async with replicas(tmp_path, valkey.url, valkey.url) as tills:

        async def work(window: Window) -> Sequence[Rate]:
            rates = await at_once(tills, window, 1000)
            # Fifty were drawn, and one is used.
            assert [rate.remaining for rate in rates] == [999]
            rates += await at_once(tills, window, 20, 40)
            so_far(rates, 20)
            rates += await at_once(tills, window, 30, 40)
            so_far(rates, 30)
            rates += await at_once(tills, window, 200, 300)
            so_far(rates, 200)
            return rates

        await in_one_minute(tmp_path, work)


async def test_what_is_not_needed_is_given_back(tmp_path: Path, valkey: Valkey) -> None:
    """Whoever asks the pool for a key that turns out to be revoked takes nothing from those who may."""
    async with replicas(tmp_path, valkey.url, valkey.url) as tills:

        async def work(window: Window) -> Sequence[Rate]:
            rates: list[Rate] = []
            for _ in range(LIMIT + 10):
                till = tills[0]._till
                await till.count({}, await till.ask({window: 3}))
                rates += await at_once(tills[1:], window, LIMIT)
            return rates

        rates = await in_one_minute(tmp_path, work)
    assert passed(rates) == LIMIT


async def test_looking_costs_nothing(tmp_path: Path, valkey: Valkey) -> None:
    """How many were let through is told alike with Redis and without, and looking lets nobody through."""
    async with replicas(tmp_path, valkey.url, f"redis://127.0.0.1:{free_port()}") as (one, other):

        async def work(window: Window) -> Sequence[Rate]:
            rates: list[Rate] = []
            looks: list[Rate] = []
            for _ in range(7):
                looks.append(await one.look(*window, LIMIT))
                rates += await at_once([one], window, LIMIT)
            elsewhere = await other.look(*window, LIMIT)
            if not turned([*rates, *looks, elsewhere]):
                assert [look.remaining for look in looks] == [rate.remaining for rate in rates]
                # The other knows what was handed out.
                assert elsewhere.remaining == LIMIT - 1 - 2 * BLOCK
            return [*rates, elsewhere]

        await in_one_minute(tmp_path, work)


async def test_a_server_that_goes_and_comes_is_told_of_once(
    tmp_path: Path, valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it goes and one when it is back, however many requests there are, and no password in them."""
    caplog.set_level(logging.DEBUG, "toolgate.gateway")
    async with replicas(tmp_path, valkey.url) as tills:
        valkey.kill()
        for _ in range(5):
            await in_one_minute(tmp_path, lambda window: at_once(tills, window, LIMIT, 5))
        valkey.start()
        await until_used(tills[0])
        await in_one_minute(tmp_path, lambda window: at_once(tills, window, LIMIT, 5))
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    where = f"127.0.0.1:{valkey.port}"
    assert told == [
        f"Redis at {where} cannot be used: ConnectionError; requests are counted in the database until it can",
        f"Redis at {where} is back: requests are counted there again",
    ]
    assert "sesame" not in caplog.text


async def test_a_server_whose_clock_is_wrong_is_not_used(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """The database's clock goes before; a minute that Redis makes up would never end, or never have begun."""

    async def early() -> float:
        return time.time() - 60

    redis = RedisServer(valkey.url, early)
    await redis.open()
    assert not redis.in_use
    await redis.close()
    assert "its clock and the database's differ by more than 5 seconds" in caplog.text


async def test_a_wrong_password_is_told_without_it(valkey: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    """The gateway goes on, and says what is wrong."""

    async def clock() -> float:
        return time.time()

    redis = RedisServer(valkey.url.replace("sesame", "barley"), clock)
    await redis.open()
    assert not redis.in_use
    await redis.close()
    assert "it does not take the user and the password" in caplog.text
    assert "barley" not in caplog.text


@pytest.mark.parametrize(
    ("trouble", "cure", "why"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OutOfMemoryError"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS"),
        ("ACL SETUSER default -zadd", "ACL SETUSER default +zadd", "ACL"),
        ("ACL SETUSER default -hset", "ACL SETUSER default +hset", "ACL"),
    ],
)
async def test_a_server_that_answers_and_refuses_to_count_is_not_used(
    valkey: Valkey,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    cure: str,
    why: str,
) -> None:
    """Full, without its copies, or without a right: said once, not asked with each request, and used when that is over."""
    monkeypatch.setattr(server, "LOOK_AGAIN", 0.02)
    caplog.set_level(logging.INFO, "toolgate.gateway")

    async def clock() -> float:
        return time.time()

    redis = RedisServer(valkey.url, clock)
    await redis.open()
    async with Redis.from_url(valkey.url) as operator:
        await operator.execute_command(*trouble.split())

        async def is_told() -> bool:
            await (await redis.ask({("new", str(time.time())): Turn(1, 2, "me")})).replies()
            return "cannot be used" in caplog.text

        async def is_used() -> bool:
            return redis.in_use

        await eventually(is_told, seconds=10)
        assert not redis.in_use
        await operator.execute_command(*cure.split())
        await eventually(is_used, seconds=10)
    await redis.close()
    refused, back = [record.getMessage() for record in caplog.records]
    assert f"it refuses to count ({why});" in refused
    assert "is back" in back


async def test_outage_of_the_database_is_none_of_redis(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """A new connection compares the clocks. Without the database's clock it is not made, and Redis stays in use."""
    caplog.set_level(logging.INFO, "toolgate.gateway")
    is_away = False

    async def clock() -> float:
        if is_away:
            raise StorageFault("PostgreSQL: ConnectionRefusedError")
        return time.time()

    redis = RedisServer(valkey.url, clock)
    await redis.open()
    window = ("one", "production")
    first = await redis.ask({window: Turn(1, 2, "me")})
    is_away = True
    second = await redis.ask({window: Turn(1, 2, "me")})
    assert await second.replies() == {}
    assert redis.in_use
    assert await first.replies()
    await redis.close()
    assert caplog.records == []


async def test_a_server_that_is_none_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """What speaks like Redis and does not say which process it is, is left alone; the gateway starts."""

    said = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while commands := (await reader.read(1000)).count(b"*"):
            writer.write(b"$11\r\nrole:master\r\n" * commands)
        writer.close()
        said.set()

    async def clock() -> float:
        return time.time()

    async with await asyncio.start_server(speak, "127.0.0.1") as pretender:
        redis = RedisServer(f"redis://127.0.0.1:{pretender.sockets[0].getsockname()[1]}", clock)
        await redis.open()
        assert not redis.in_use
        await redis.close()
        await said.wait()
    assert "it does not say by INFO which process it is" in caplog.text


async def everything_in(valkey: Valkey) -> dict[bytes, bytes]:
    """What a copy on a disk would hold."""
    async with Redis.from_url(valkey.url) as redis:
        return {key: await redis.dump(key) for key in await redis.keys("toolgate:*")}


async def put_into(valkey: Valkey, held: dict[bytes, bytes]) -> None:
    """Begin with what a copy held."""
    assert held
    async with Redis.from_url(valkey.url) as redis:
        for key, value in held.items():
            await redis.restore(key, 0, value)
