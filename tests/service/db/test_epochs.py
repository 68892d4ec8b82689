"""Whatever a check reads cannot change without the epoch of its environment being raised."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection
from support.databases import database_url, engine

from toolgate_service.core.ids import new_id
from toolgate_service.migrations.metadata import METADATA

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ORGANIZATION, OTHER, USER, AGENT, PERMISSION, RULE, BUDGET, TOTAL, KEY = (new_id() for _ in range(9))

#: changes of what a check reads, by name
CHANGES = {
    "agent disabled": "UPDATE agents SET status = 'inactive' WHERE id = :agent",
    "agent deleted": "UPDATE agents SET deleted_at = created_at WHERE id = :agent",
    "permission loosened": "UPDATE permissions SET max_amount = NULL WHERE id = :permission",
    "permission deleted": "DELETE FROM permissions WHERE id = :permission",
    "rule disabled": "UPDATE rules SET enabled = false WHERE id = :rule",
    "rule deleted": "DELETE FROM rules WHERE id = :rule",
    "budget disabled": "UPDATE budgets SET enabled = false WHERE id = :budget",
    "budget deleted": "DELETE FROM budgets WHERE id = :budget",
    "key revoked": "UPDATE api_keys SET revoked_at = created_at WHERE id = :key",
    "key deleted": "DELETE FROM api_keys WHERE id = :key",
}


async def insert(connection: AsyncConnection, table: str, **values: Any) -> None:
    await connection.execute(METADATA.tables[table].insert(), values)


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[AsyncConnection]:
    """Two organizations; the first has an agent with a permission and a key in its production environment."""
    made = engine(database_url(tmp_path))
    scope = {"organization_id": ORGANIZATION, "environment": "production"}
    async with made.begin() as connection:
        for organization in (ORGANIZATION, OTHER):
            await insert(
                connection, "organizations", id=organization, name="o", slug=organization, plan="free",
                is_active=True, created_at=MOMENT,
            )  # fmt: skip
            for environment in ("production", "test"):
                await insert(
                    connection, "environments", organization_id=organization, name=environment, log_bytes=0
                )
        await insert(
            connection, "users", id=USER, organization_id=ORGANIZATION, email="a@example.com", password_hash="x",
            role="admin", token_version=0, created_at=MOMENT,
        )  # fmt: skip
        await insert(
            connection,
            "agents",
            id=AGENT,
            name="a",
            status="active",
            created_by=USER,
            created_at=MOMENT,
            **scope,
        )
        await insert(
            connection, "permissions", id=PERMISSION, agent_id=AGENT, action="a.b", requires_approval=False,
            amount_required=False, required_approvals=1, separation_of_duties=False, created_by=USER,
            created_at=MOMENT, **scope,
        )  # fmt: skip
        await insert(
            connection, "rules", id=RULE, name="r", effect="forbid", actions="[]", enabled=True, created_by=USER,
            created_at=MOMENT, **scope,
        )  # fmt: skip
        await insert(
            connection, "budgets", id=BUDGET, name="b", scope="run", actions="[]", measure="count", period="hour",
            maximum=1, at_limit="deny", enabled=True, created_by=USER, created_at=MOMENT, **scope,
        )  # fmt: skip
        await insert(
            connection, "budget_totals", id=TOTAL, budget_id=BUDGET, subject="", currency="", starts_at=MOMENT,
            ends_at=MOMENT, settled=0, reserved=0, created_at=MOMENT, **scope,
        )  # fmt: skip
        await insert(
            connection,
            "api_keys",
            id=KEY,
            digest="d",
            ciphertext=b"c",
            last_four="abcd",
            created_at=MOMENT,
            **scope,
        )
    async with made.connect() as connection:
        yield connection
    await made.dispose()


async def epochs(connection: AsyncConnection) -> dict[tuple[str, str], int]:
    rows = await connection.execute(
        METADATA.tables["epochs"].select().order_by(text("organization_id, environment"))
    )
    return {(row.organization_id, row.environment): row.epoch for row in rows}


@pytest.mark.parametrize("change", CHANGES)
async def test_change_of_a_row_raises_the_epoch_of_its_environment(
    connection: AsyncConnection, change: str
) -> None:
    before = await epochs(connection)
    types = {"agent": AGENT, "permission": PERMISSION, "rule": RULE, "budget": BUDGET, "key": KEY}
    name = change.split(maxsplit=1)[0]
    await connection.execute(text(CHANGES[change]), {name: types[name]})
    after = await epochs(connection)
    assert {key for key in after if after[key] != before.get(key)} == {(ORGANIZATION, "production")}
    assert after[ORGANIZATION, "production"] > before[ORGANIZATION, "production"]


async def test_change_of_a_total_raises_nothing(connection: AsyncConnection) -> None:
    before = await epochs(connection)
    await connection.execute(text("UPDATE budget_totals SET reserved = '1'"))
    await connection.execute(text("DELETE FROM budget_totals"))
    assert await epochs(connection) == before


async def test_new_rows_raise_the_epoch(connection: AsyncConnection) -> None:
    before = await epochs(connection)
    scope = {"organization_id": ORGANIZATION, "environment": "production"}
    await insert(
        connection,
        "agents",
        id=new_id(),
        name="b",
        status="active",
        created_by=USER,
        created_at=MOMENT,
        **scope,
    )
    between = await epochs(connection)
    await insert(
        connection, "api_keys", id=new_id(), digest="e", ciphertext=b"c", last_four="abcd", created_at=MOMENT,
        agent_id=AGENT, **scope,
    )  # fmt: skip
    after = await epochs(connection)
    key = (ORGANIZATION, "production")
    assert before[key] < between[key] < after[key]


@pytest.mark.parametrize("change", ["created", "lifted", "deleted"])
async def test_change_of_a_freeze_raises_both_epochs_and_no_other_ones(
    connection: AsyncConnection, change: str
) -> None:
    made = {"id": new_id(), "organization_id": ORGANIZATION, "reason": "x", "created_by": USER}
    before = await epochs(connection)
    await insert(connection, "freezes", created_at=MOMENT, **made)
    if change != "created":
        before = await epochs(connection)
        lift = "UPDATE freezes SET lifted_at = created_at, lifted_by = created_by"
        await connection.execute(text(lift if change == "lifted" else "DELETE FROM freezes"))
    after = await epochs(connection)
    assert {key for key in after if after[key] != before.get(key)} == {
        (ORGANIZATION, "production"),
        (ORGANIZATION, "test"),
    }


async def test_change_of_the_organization_raises_both_epochs_and_no_other_ones(
    connection: AsyncConnection,
) -> None:
    await connection.execute(text("UPDATE organizations SET is_active = false"))
    before = await epochs(connection)
    await connection.execute(
        METADATA.tables["organizations"]
        .update()
        .where(METADATA.tables["organizations"].c.id == ORGANIZATION),
        {"plan": "pro"},
    )
    after = await epochs(connection)
    raised = {key for key in after if after[key] != before.get(key)}
    assert raised == {(ORGANIZATION, "production"), (ORGANIZATION, "test")}


async def test_rolled_back_change_raises_nothing(connection: AsyncConnection) -> None:
    before = await epochs(connection)
    await connection.rollback()
    await connection.execute(text("DELETE FROM permissions"))
    await connection.rollback()
    assert await epochs(connection) == before
