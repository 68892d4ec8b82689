"""PgBouncer in front of PostgreSQL: session mode works, and the other modes are refused at the start."""

import asyncio
from pathlib import Path

import asyncpg
import pytest
from support.databases import empty_database
from support.gateway import LiveGateway, Owner
from support.pgbouncer import PgBouncer
from support.waiting import until
from support.wire import Wire

from toolgate_service.core.errors import StorageError
from toolgate_service.db.database import open_database

pytestmark = pytest.mark.postgresql_only("a pooler stands in front of a server")


async def _started(url: str) -> None:
    database = open_database(url)
    try:
        await database.start()
    finally:
        await database.close()


def test_session_mode_serves_everything(tmp_path: Path) -> None:
    """Keys, held checks, decisions at another gateway and log entries, and nothing is left in the pool."""
    direct = empty_database(tmp_path)
    with PgBouncer(direct, "session", tmp_path) as pooler:
        env = {"TOOLGATE_DATABASE_URL": pooler.url}
        with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner:
            agent = owner.agent()
            owner.permit(agent, "files.delete", requires_approval=True)
            with Wire.of(owner) as wire:
                question = {"agent_id": agent, "action": "files.delete"}
                asked = wire.send("POST", "/sdk/check", question).json()["approval_id"]
                assert wire.send("POST", f"/api/approvals/{asked}/approve", {}).status == 200
                assert wire.send("POST", "/sdk/check", question).json()["allowed"]
                assert wire.log(agent, "files.delete").status == 200
                assert len(wire.entries("files.delete")) == 1
        assert asyncio.run(_setting(pooler.url, "synchronous_commit")) == "on"


async def _setting(url: str, name: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        value: str = await connection.fetchval("SELECT current_setting($1)", name)
        return value
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "settings",
    [(), ("default_pool_size = 1",), ("server_round_robin = 1",)],
    ids=["usual", "one_connection", "in_turn"],
)
def test_transaction_mode_is_refused_with_the_cure(tmp_path: Path, settings: tuple[str, ...]) -> None:
    with (
        PgBouncer(empty_database(tmp_path), "transaction", tmp_path, *settings) as pooler,
        pytest.raises(StorageError, match=r"pooler in transaction mode.*pool_mode = session"),
    ):
        asyncio.run(_started(pooler.url))


def test_transaction_mode_with_a_warm_pool_is_refused(tmp_path: Path) -> None:
    """Many idle servers that the pooler hands out in turn."""

    async def warm_and_start(url: str) -> None:
        connections = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(12)]
        try:
            for connection in connections:
                await connection.execute("BEGIN; SELECT 1")
            for connection in connections:
                await connection.execute("COMMIT")
            await _started(url)
        finally:
            for connection in connections:
                connection.terminate()

    with (
        PgBouncer(empty_database(tmp_path), "transaction", tmp_path, "server_round_robin = 1") as pooler,
        pytest.raises(StorageError, match="pooler in transaction mode"),
    ):
        asyncio.run(warm_and_start(pooler.url))


def test_statement_mode_is_refused_with_the_cure(tmp_path: Path) -> None:
    with (
        PgBouncer(empty_database(tmp_path), "statement", tmp_path) as pooler,
        pytest.raises(StorageError, match=r"pooler in statement mode.*pool_mode = session"),
    ):
        asyncio.run(_started(pooler.url))


def test_no_session_of_the_gateway_commits_from_memory(tmp_path: Path) -> None:
    """Whatever connection a pool hands on, its commits wait for the disk, after checks and log entries too."""
    url = empty_database(tmp_path)
    with LiveGateway(tmp_path, env={"TOOLGATE_DATABASE_URL": url}) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        with Wire.of(owner) as wire:
            assert wire.check(agent, "files.read").status == 200
            assert wire.log(agent, "files.read").status == 200
            texts = until(lambda: asyncio.run(_statements(url)))
    assert texts
    assert not [text for text in texts if text.upper().startswith("SET SYNCHRONOUS_COMMIT")]


async def _statements(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT query FROM pg_stat_activity WHERE application_name = 'toolgate' AND datname = current_database()"
        )
        return [row[0] for row in rows]
    finally:
        await connection.close()
