"""Two gateways on a server that puts the busy routes' transactions in one order, and ends those that it cannot."""

import asyncio
from collections import Counter
from pathlib import Path

import asyncpg
import pytest
from support.databases import database_url
from support.inloop import Member, running

from toolgate_service.core.errors import StorageFault
from toolgate_service.db import postgres_connection as connections
from toolgate_service.db.retry import storage_fault

pytestmark = pytest.mark.postgresql_only("SQLite puts them in one order by itself")

REQUESTS = 200
AT_ONCE = 24


async def test_what_the_server_could_not_put_in_order_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries and held checks in masses: some are ended and done anew, all are answered, and each is there once."""
    lost: Counter[str | None] = Counter()

    def counted(said: str, code: str | None) -> StorageFault:
        lost[code] += 1
        return storage_fault(said, code)

    monkeypatch.setattr(connections, "storage_fault", counted)
    # As engines do that know no other way.
    monkeypatch.setitem(connections.INDEXED, "default_transaction_isolation", "serializable")
    server = await asyncpg.connect(database_url(tmp_path))
    async with running(tmp_path) as one, running(tmp_path) as other:
        member = await Member.of(one, "order@example.test")
        room = asyncio.Semaphore(AT_ONCE)

        async def log(number: int) -> int:
            body = {"agent_id": member.agent, "action": "done", "status": "success"}
            headers = member.headers | {"Idempotency-Key": f"key-{number}"}
            for _ in range(5):
                async with room:
                    answer = await (one, other)[number % 2].http.post("/sdk/log", json=body, headers=headers)
                # Whoever lost eight times is told to come again, and does.
                if answer.status_code != 503:
                    break
            return answer.status_code

        async def hold(number: int) -> str:
            async with room:
                return await member.hold((one, other)[number % 2], number % 20)

        logged = await asyncio.gather(*map(log, range(REQUESTS)))
        held = await asyncio.gather(*map(hold, range(REQUESTS)))
    assert Counter(logged) == {200: REQUESTS}
    assert len(set(held)) == 20
    assert await server.fetchval("SELECT count(*) FROM log_entries") == REQUESTS
    assert await server.fetchval("SELECT sum(log_entries) FROM monthly_usage") == REQUESTS
    assert await server.fetchval("SELECT count(*) FROM approvals") == 20
    assert lost["40001"] > 0
    await server.close()
