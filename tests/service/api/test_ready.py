"""`GET /health/ready`: whether the gateway can use its database."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from sqlmodel.ext.asyncio.session import AsyncSession
from support.gateway import LiveGateway
from support.insight import execute
from support.waiting import until

from toolgate_service.core.clock import utcnow
from toolgate_service.db import health as readiness
from toolgate_service.db.database import NOW
from toolgate_service.db.health import Readiness
from toolgate_service.db.sqlite import SqliteDatabase


def test_a_gateway_that_can_work_is_ready(anyone: httpx.Client) -> None:
    """It is 200 without a credential, and contains nothing else."""
    answer = anyone.get("/health/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.sqlite_only("the tests' way into PostgreSQL counts changed rows, and a renamed table has none")
def test_a_database_that_is_gone_is_told(tmp_path: Path) -> None:
    """It is 503 with the reason while tables are missing, then 200 again; /health stays 200."""
    with LiveGateway(tmp_path) as gateway, httpx.Client(base_url=gateway.url, timeout=30) as client:
        assert client.get("/health/ready").status_code == 200
        execute(gateway, "ALTER TABLE organizations RENAME TO elsewhere")
        until(lambda: client.get("/health/ready").status_code == 503)
        answer = client.get("/health/ready")
        assert answer.json() == {"status": "unavailable", "detail": "The database cannot be read"}
        assert answer.headers["Retry-After"] == "1"
        assert client.get("/health").status_code == 200
        execute(gateway, "ALTER TABLE elsewhere RENAME TO organizations")
        until(lambda: client.get("/health/ready").status_code == 200)


@pytest.mark.sqlite_only("PostgreSQL has no one lock that every writer needs")
def test_a_database_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A blocked writer makes the gateway unready; reads go on."""
    with LiveGateway(tmp_path) as gateway, httpx.Client(base_url=gateway.url, timeout=30) as client:
        other = sqlite3.connect(gateway.database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answer = client.get("/health/ready")
        assert answer.status_code == 503
        assert answer.json()["status"] == "unavailable"
        assert "did not respond" in answer.json()["detail"]
        other.execute("ROLLBACK")
        other.close()
        until(lambda: client.get("/health/ready").status_code == 200)


class SkewedDatabase(SqliteDatabase):
    """Database whose clock differs."""

    skew = timedelta(0)
    looks = 0

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        self.looks += 1
        async with super().reading() as session:
            session.info[NOW] = utcnow() + self.skew
            yield session


@pytest.fixture
async def skewed(tmp_path: Path) -> AsyncIterator[SkewedDatabase]:
    """Open database whose clock differs."""
    database = SkewedDatabase(f"sqlite:///{tmp_path}/skewed.db")
    await database.start()
    yield database
    await database.close()


@pytest.mark.parametrize(
    ("seconds", "well"), [(0, True), (4, True), (-4, True), (6, False), (-6, False), (60, False)]
)
async def test_clocks_that_differ_are_told(skewed: SkewedDatabase, seconds: int, well: bool) -> None:
    """The gateway is not ready if its clock differs from the database's by more than five seconds."""
    skewed.skew = timedelta(seconds=seconds)
    problem = await Readiness(skewed).problem()
    assert (problem is None) is well
    assert well or "clock" in str(problem)


async def test_many_who_ask_cost_one_look(skewed: SkewedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Concurrent requests share one query, whose result is cached for a short time."""
    ready = Readiness(skewed)
    assert await asyncio.gather(*[ready.problem() for _ in range(50)]) == [None] * 50
    await ready.problem()
    assert skewed.looks == 1
    monkeypatch.setattr(readiness, "CACHE_SECONDS", -1)
    forgetful = Readiness(skewed)
    await forgetful.problem()
    await forgetful.problem()
    assert skewed.looks == 3
