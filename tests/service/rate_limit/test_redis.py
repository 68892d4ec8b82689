"""Gateways that count in Redis share one limit; without Redis each minute is counted in PostgreSQL."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.databases import database_url
from support.ports import refusing_port
from support.rate_limiters import Window, count_together, in_one_minute, limiters, passed, until_recovered
from support.valkey import Valkey
from support.waiting import eventually

from toolgate_service.core.errors import StorageFault
from toolgate_service.db.postgres import PostgresDatabase
from toolgate_service.rate_limit import redis
from toolgate_service.rate_limit.limiter import MemoryRateLimiter, Rate
from toolgate_service.rate_limit.postgres import PostgresRateLimiter
from toolgate_service.rate_limit.redis import RedisRateLimiter

pytestmark = pytest.mark.postgresql_only("on SQLite the processes of one machine count in a file")

LIMIT = 100


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not give up a Redis that a busy machine delays."""
    monkeypatch.setattr(redis, "COMMAND_TIMEOUT", 30)
    monkeypatch.setattr(redis, "CONNECT_TIMEOUT", 30)
    monkeypatch.setattr(redis, "RECHECK_INTERVAL", 0.02)


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A server of the test's own."""
    with Valkey(password="open-sesame") as valkey:
        yield valkey


@asynccontextmanager
async def counting_in_memory(url: str) -> AsyncIterator[RedisRateLimiter]:
    """A limiter whose fallback needs no database."""
    limiter = RedisRateLimiter(url, MemoryRateLimiter())
    await limiter.open()
    yield limiter
    await limiter.close()


async def test_two_gateways_count_down_together(tmp_path: Path, valkey: Valkey) -> None:
    async with limiters(tmp_path, valkey.url, valkey.url) as both:

        async def work(window: Window) -> list[Rate]:
            return [await both[number % 2].count(*window, LIMIT) for number in range(LIMIT + 4)]

        rates = await in_one_minute(tmp_path, work)
    assert [rate.remaining for rate in rates] == [*range(LIMIT - 1, -1, -1), 0, 0, 0, 0]
    assert [rate.exceeded for rate in rates] == [False] * LIMIT + [True] * 4


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_of_many_at_once_exactly_the_limit_passes(tmp_path: Path, valkey: Valkey, limit: int) -> None:
    async with limiters(tmp_path, valkey.url, valkey.url, valkey.url) as three:
        for _ in range(5):
            rates = await in_one_minute(
                tmp_path, lambda window: count_together(three, window, limit, 2 * limit + 40)
            )
            assert passed(rates) == limit
            assert {rate.remaining for rate in rates if rate.exceeded} == {0}


async def test_windows_of_different_scopes_do_not_mix(valkey: Valkey) -> None:
    async with counting_in_memory(valkey.url) as limiter:
        first = await limiter.count("one", "production/actions", LIMIT)
        others = [
            await limiter.count("one", "production/reads", LIMIT),
            await limiter.count("two", "production/actions", LIMIT),
        ]
    assert [rate.remaining for rate in (first, *others)] == [LIMIT - 1] * 3


async def test_a_limit_of_zero_lets_nothing_pass(valkey: Valkey) -> None:
    async with counting_in_memory(valkey.url) as limiter:
        assert (await limiter.count("one", "production/actions", 0)).exceeded


async def test_windows_are_removed_after_their_minute(valkey: Valkey) -> None:
    async with counting_in_memory(valkey.url) as limiter, Redis.from_url(valkey.url) as operator:
        await limiter.count("one", "production/actions", LIMIT)
        assert 60 < await operator.ttl("toolgate:one/production/actions") <= 120


async def test_a_window_of_a_clock_that_was_set_back_stays_full(valkey: Valkey) -> None:
    """Redis counted in a minute that is in the future by now: the window is not opened again."""
    async with counting_in_memory(valkey.url) as limiter, Redis.from_url(valkey.url) as operator:
        ahead = int(time.time() // 60) + 5
        await operator.hset("toolgate:one/production/actions", mapping={"minute": ahead, "requests": LIMIT})
        rate = await limiter.count("one", "production/actions", LIMIT)
    assert rate.exceeded
    assert rate.reset == (ahead + 1) * 60


async def test_without_redis_the_database_counts(tmp_path: Path) -> None:
    with refusing_port() as port:
        nowhere = f"redis://127.0.0.1:{port}"
        async with limiters(tmp_path, nowhere, nowhere) as both:
            assert all(limiter.is_degraded for limiter in both)
            rates = await in_one_minute(
                tmp_path, lambda window: count_together(both, window, LIMIT, LIMIT + 50)
            )
    assert passed(rates) == LIMIT


async def test_a_gateway_without_the_setting_counts_apart(tmp_path: Path, valkey: Valkey) -> None:
    """While gateways are given the setting one by one, up to twice the limit passes."""
    database = PostgresDatabase(database_url(tmp_path))
    without = PostgresRateLimiter(database)
    await without.open()
    try:
        async with limiters(tmp_path, valkey.url) as [with_redis]:
            rates = await in_one_minute(
                tmp_path, lambda window: count_together([without, with_redis], window, LIMIT, 4 * LIMIT)
            )
    finally:
        await without.close()
        await database.close()
    assert passed(rates) == 2 * LIMIT


async def test_a_lost_redis_lets_at_most_twice_the_limit_pass(
    tmp_path: Path, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests go on while Redis is gone. The database begins a count of its own, and Redis continues after it."""
    monkeypatch.setattr(redis, "_seconds_left", lambda _moment: 0.5)
    async with limiters(tmp_path, valkey.url, valkey.url) as both:

        async def work(window: Window) -> Sequence[Rate]:
            # If an earlier attempt was repeated, Redis was restarted.
            await asyncio.gather(*map(until_recovered, both))
            rates = await count_together(both, window, LIMIT, LIMIT + 10)
            valkey.kill()
            rates += await count_together(both, window, LIMIT, LIMIT + 10)
            valkey.start()
            return rates

        rates = await in_one_minute(tmp_path, work)
    assert passed(rates[: LIMIT + 10]) == LIMIT
    assert passed(rates) == 2 * LIMIT


async def test_a_restarted_redis_is_used_from_the_next_minute_on(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "_seconds_left", lambda _moment: 0.5)
    async with counting_in_memory(valkey.url) as limiter:
        for _ in range(3):
            await limiter.count("one", "production/actions", LIMIT)
        valkey.kill()
        valkey.start()
        assert (await limiter.count("one", "production/actions", LIMIT)).remaining == LIMIT - 1
        await asyncio.sleep(0.2)
        assert limiter.is_degraded
        await until_recovered(limiter)


async def test_a_gateway_that_starts_after_a_restart_of_redis_counts_in_the_database(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "_seconds_left", lambda _moment: 0.5)
    valkey.kill()
    valkey.start()
    async with counting_in_memory(valkey.url) as limiter:
        assert limiter.is_degraded
        await until_recovered(limiter)
        # The other gateways use Redis from the same minute on.
        async with counting_in_memory(valkey.url) as other:
            assert not other.is_degraded


async def test_a_silent_redis_delays_requests_once(
    tmp_path: Path, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections and does not answer: the database counts until it does."""
    monkeypatch.setattr(redis, "COMMAND_TIMEOUT", 0.4)
    async with limiters(tmp_path, valkey.url, valkey.url) as both:

        async def work(window: Window) -> Sequence[Rate]:
            rates = await count_together(both, window, LIMIT, 20)
            valkey.fall_silent()
            async with asyncio.timeout(10):
                rates += await count_together(both, window, LIMIT, 20)
            began = time.monotonic()
            rates += await count_together(both, window, LIMIT, 20)
            assert time.monotonic() - began < 0.4
            valkey.speak_again()
            await asyncio.gather(*map(until_recovered, both))
            return rates + await count_together(both, window, LIMIT, LIMIT)

        rates = await in_one_minute(tmp_path, work)
    assert passed(rates[:60]) == 60
    assert LIMIT <= passed(rates) <= 2 * LIMIT


async def test_a_changed_limit_applies_to_the_next_request(tmp_path: Path, valkey: Valkey) -> None:
    async with limiters(tmp_path, valkey.url, valkey.url) as both:

        async def work(window: Window) -> Sequence[Rate]:
            rates = await count_together(both, window, 1000)
            for limit in (20, 30, 200):
                rates += await count_together(both, window, limit, limit + 40)
                if len({rate.reset for rate in rates}) == 1:
                    assert passed(rates) == limit
            return rates

        await in_one_minute(tmp_path, work)


async def test_peeking_counts_nothing(valkey: Valkey) -> None:
    async with counting_in_memory(valkey.url) as limiter:
        for _ in range(3):
            seen = await limiter.peek("one", "production/actions", 2)
            counted = await limiter.count("one", "production/actions", 2)
            if seen.reset == counted.reset:
                assert (seen.remaining, seen.exceeded) == (counted.remaining, counted.exceeded)


async def test_an_outage_is_logged_once_and_its_end_too(
    tmp_path: Path, valkey: Valkey, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests there are; neither line contains the password."""
    monkeypatch.setattr(redis, "_seconds_left", lambda _moment: 0.1)
    caplog.set_level(logging.DEBUG, "toolgate.gateway")
    async with limiters(tmp_path, valkey.url) as [limiter]:
        valkey.kill()
        for _ in range(5):
            await in_one_minute(tmp_path, lambda window: count_together([limiter], window, LIMIT, 5))

        async def is_logged() -> bool:
            return "cannot be used" in caplog.text

        await eventually(is_logged)
        valkey.start()
        await until_recovered(limiter)
        await in_one_minute(tmp_path, lambda window: count_together([limiter], window, LIMIT, 5))
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    where = f"127.0.0.1:{valkey.port}"
    assert told == [
        f"Redis at {where} cannot be used: ConnectionError; until it can be used again, the gateway counts requests in the database",
        f"Redis at {where} is available again: requests are counted there",
    ]
    assert "sesame" not in caplog.text


async def test_a_wrong_password_is_logged_without_it(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    async with counting_in_memory(valkey.url.replace("sesame", "barley")) as limiter:
        assert limiter.is_degraded
        assert not (await limiter.count("one", "production/actions", LIMIT)).exceeded
    assert "the server rejected the user or the password" in caplog.text
    assert "barley" not in caplog.text


@pytest.mark.parametrize(
    ("trouble", "cure", "why"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OutOfMemoryError"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS"),
        ("ACL SETUSER default -hset", "ACL SETUSER default +hset", "ACL"),
        ("ACL SETUSER default -evalsha", "ACL SETUSER default +evalsha", "NoPermissionError"),
    ],
)
async def test_a_server_that_refuses_to_count_is_not_used(
    valkey: Valkey, caplog: pytest.LogCaptureFixture, trouble: str, cure: str, why: str
) -> None:
    """Full, without its copies, or without a right: logged once, and used again when that is over."""
    caplog.set_level(logging.INFO, "toolgate.gateway")
    async with counting_in_memory(valkey.url) as limiter, Redis.from_url(valkey.url) as operator:
        await operator.execute_command(*trouble.split())

        async def is_told() -> bool:
            assert not (await limiter.count("one", "production/actions", LIMIT)).exceeded
            return "cannot be used" in caplog.text

        await eventually(is_told, seconds=10)
        assert limiter.is_degraded
        await operator.execute_command(*cure.split())
        await until_recovered(limiter)
    refused, back = [record.getMessage() for record in caplog.records]
    assert f"the server rejected the command that counts requests ({why});" in refused
    assert "is available again" in back


async def test_an_outage_of_the_database_is_none_of_redis(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolgate.gateway")

    class Away(MemoryRateLimiter):
        async def count(self, *_: object) -> Rate:
            raise StorageFault("PostgreSQL: ConnectionRefusedError")

    limiter = RedisRateLimiter(valkey.url, Away())
    await limiter.open()
    assert not (await limiter.count("one", "production/actions", LIMIT)).exceeded
    assert not limiter.is_degraded
    await limiter.close()
    assert caplog.records == []


async def test_a_server_of_another_kind_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """The gateway starts, and counts in the database."""
    done = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while commands := (await reader.read(1000)).count(b"*"):
            writer.write(b"$11\r\nrole:master\r\n" * commands)
        writer.close()
        done.set()

    async with await asyncio.start_server(speak, "127.0.0.1") as pretender:
        url = f"redis://127.0.0.1:{pretender.sockets[0].getsockname()[1]}"
        async with counting_in_memory(url) as limiter:
            assert limiter.is_degraded
        await done.wait()
    assert "cannot be used" in caplog.text
