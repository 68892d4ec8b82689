"""A cursor is as fast on the last page as on the first: its place is found by index (decisions §2)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import event
from sqlmodel.ext.asyncio.session import AsyncSession
from support.databases import database_url, engine

from toolgate_service.accounts.sessions import Caller
from toolgate_service.approvals.repository import list_approvals
from toolgate_service.audit.repository import list_audit
from toolgate_service.core.clock import utcnow
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import NOW
from toolgate_service.db.pagination import Page, Position
from toolgate_service.logs.repository import Filters, list_entries

pytestmark = pytest.mark.sqlite_only("PostgreSQL plans by what a table holds, and an empty one says nothing")

List = Callable[[AsyncSession, Caller, Page], Awaitable[object]]
LISTS: dict[str, List] = {
    "logs": lambda session, caller, page: list_entries(session, caller, "production", Filters(), page),
    "approvals": lambda session, caller, page: list_approvals(
        session, caller, "production", page, status=None, agent_id=None, action=None
    ),
    "audit": lambda session, caller, page: list_audit(
        session, caller.organization_id, "test", page, kind=None, user_id=None
    ),
}


class Anybody:
    """No more of a caller than a list needs."""

    organization_id = "01890000-0000-7000-8000-000000000000"


@pytest.mark.parametrize("name", LISTS)
async def test_a_place_is_found_by_index(tmp_path: Path, name: str) -> None:
    """The page behind a cursor is searched for by tenant and place at once: nothing before it is read, nothing sorted."""
    made = engine(database_url(tmp_path))
    said: list[tuple[str, Any]] = []
    event.listen(
        made.sync_engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, parameters, *_: said.append((statement, parameters)),
    )
    page = Page(50, 0, Position(utcnow(), new_id()), "/", (), Anybody.organization_id, b"")
    async with AsyncSession(made) as session:
        session.info[NOW] = utcnow()
        await LISTS[name](session, cast("Caller", Anybody()), page)
        [(statement, parameters)] = [one for one in said if "ORDER BY" in one[0]]
        connection = await session.connection()
        explained = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        plan = [row[-1] for row in explained.fetchall()]
    await made.dispose()
    [search] = plan
    assert search.startswith("SEARCH ")
    assert "organization_id=?" in search
    assert "(created_at,id)<(?,?)" in search
