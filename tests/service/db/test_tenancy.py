"""The schema itself keeps tenants apart, whatever the code above it does (decisions §9)."""

import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from support.databases import database_url, engine

from toolgate_service.migrations.metadata import METADATA

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def test_every_tenants_row_names_its_tenant() -> None:
    """Each table has an organization, but for those of no tenant, and points by composite keys alone."""
    for table in METADATA.sorted_tables:
        if table.name in {"organizations", "login_failures", "provider_events", "heartbeats", "schema_floor"}:
            continue
        assert "organization_id" in table.columns, table.name
        for constraint in table.foreign_key_constraints:
            assert "organization_id" in constraint.column_keys, (table.name, constraint.name)
            target = constraint.referred_table.name
            scoped = {"agents", "approvals", "permissions", "api_keys", "environments", "log_entries"}
            scoped |= {"webhooks", "events"}
            columns = set(constraint.column_keys)
            assert target not in scoped or columns & {"environment", "name"}, (table.name, constraint.name)
        assert not table.columns["organization_id"].nullable


def named(name: str) -> str:
    """Return the identifier that stands for a name in these tests."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[AsyncConnection]:
    """Organizations `a` and `b`, each with both environments, a user, and an agent in either environment."""
    made = engine(database_url(tmp_path))
    async with made.begin() as connection:
        for name in ("a", "b"):
            organization = {"id": named(name), "name": name, "slug": name, "plan": "free", "is_active": True}
            await insert(connection, "organizations", organization)
            await insert(connection, "users", user(name))
            for environment in ("production", "test"):
                row = {"organization_id": named(name), "name": environment, "log_bytes": 0}
                await insert(connection, "environments", row)
                row = agent(name, environment) | {"id": named(f"{environment}-{name}")}
                await insert(connection, "agents", row)
    async with made.connect() as connection:
        yield connection
    await made.dispose()


async def insert(connection: AsyncConnection, table: str, row: Row) -> None:
    stated = METADATA.tables[table]
    known = {"created_at": MOMENT} if "created_at" in stated.columns else {}
    await connection.execute(stated.insert().values(known | row))


def user(organization: str) -> Row:
    return {
        "id": named(f"user-{organization}"),
        "organization_id": named(organization),
        "email": organization,
        "password_hash": "x",
        "role": "admin",
        "version": 1,
    }


def agent(organization: str, environment: str) -> Row:
    return {
        "organization_id": named(organization),
        "environment": environment,
        "name": "bot",
        "status": "active",
        "created_by": named(f"user-{organization}"),
    }


def permission(agent_name: str, organization: str, environment: str = "production") -> Row:
    return {
        "id": named("p"),
        "agent_id": named(agent_name),
        "organization_id": named(organization),
        "environment": environment,
        "action": "a",
        "requires_approval": False,
        "amount_required": False,
        "required_approvals": 1,
        "separation_of_duties": False,
        "created_by": named(f"user-{organization}"),
    }


def entry(agent_name: str, organization: str, environment: str = "production") -> Row:
    return {
        "id": named("e"),
        "agent_id": named(agent_name),
        "organization_id": named(organization),
        "environment": environment,
        "action": "a",
        "status": "success",
        "key_id": named("k"),
    }


def approval(agent_name: str, organization: str, environment: str = "production") -> Row:
    return {
        "id": named("r"),
        "agent_id": named(agent_name),
        "organization_id": named(organization),
        "environment": environment,
        "action": "a",
        "permission_id": named("p"),
        "key_id": named("k"),
        "context": "{}",
        "digest": "d",
        "run_id": "",
        "call_id": "",
        "consumed_call_id": "",
        "status": "pending",
        "required_approvals": 1,
        "expires_at": MOMENT,
    }


def api_key(agent_name: str, organization: str, environment: str = "production") -> Row:
    return {
        "id": named("k"),
        "agent_id": named(agent_name),
        "organization_id": named(organization),
        "environment": environment,
        "digest": "d",
        "ciphertext": b"c",
        "last_four": "abcd",
    }


ROWS = pytest.mark.parametrize(
    ("table", "row"),
    [("permissions", permission), ("log_entries", entry), ("approvals", approval), ("api_keys", api_key)],
    ids=["permissions", "log_entries", "approvals", "api_keys"],
)


@ROWS
async def test_a_row_may_point_within_its_tenant(
    tenants: AsyncConnection, table: str, row: Callable[..., Row]
) -> None:
    """The rows that are refused below are refused for what they point at, nothing else."""
    await insert(tenants, table, row("production-a", "a"))


@ROWS
@pytest.mark.parametrize("agent_name", ["production-b", "test-a", "nobody"])
async def test_a_row_cannot_point_into_another_tenant(
    tenants: AsyncConnection, table: str, row: Callable[..., Row], agent_name: str
) -> None:
    """Another organization's agent, or the other environment's, is refused by the database itself."""
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"):
        await insert(tenants, table, row(agent_name, "a"))


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("agents", agent("a", "production") | {"id": named("x"), "created_by": named("user-b")}),
        ("approvals", approval("production-a", "a") | {"decided_by": named("user-b")}),
    ],
    ids=["creating", "deciding"],
)
async def test_nobody_acts_in_another_organization(tenants: AsyncConnection, table: str, row: Row) -> None:
    """A foreign user can create no agent and decide no approval, in the database itself."""
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"):
        await insert(tenants, table, row)


@pytest.mark.parametrize(
    ("table", "column"),
    [("agents", "status"), ("organizations", "plan"), ("users", "role"), ("environments", "name")],
)
async def test_words_outside_the_lists_are_refused(tenants: AsyncConnection, table: str, column: str) -> None:
    """States are what the specification names, in the database itself."""
    with pytest.raises(IntegrityError, match=r"(?i)check constraint"):
        await tenants.exec_driver_sql(f"UPDATE {table} SET {column} = 'elsewhere'")
