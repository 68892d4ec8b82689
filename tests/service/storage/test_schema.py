"""The schema: migrations and models agree, and the schema itself keeps tenants apart (decisions §9)."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, create_engine, inspect

from toolgate_service.storage.migrate import configuration, upgrade
from toolgate_service.storage.tables import METADATA


@pytest.fixture
def migrated(tmp_path: Path) -> Iterator[Engine]:
    """A database that the migrations made."""
    engine = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    with engine.begin() as connection:
        upgrade(connection)
    yield engine
    engine.dispose()


def statements(connection: Connection) -> dict[str, list[str]]:
    """Return what SQLite says each table and index is made of, order aside."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'alembic_version'"
    found = connection.exec_driver_sql(query).fetchall()
    return {
        name: sorted(line.strip().rstrip(",").strip() for line in sql.splitlines()) for name, sql in found
    }


def test_the_migrations_make_what_the_models_say(migrated: Engine, tmp_path: Path) -> None:
    """Column by column, constraint by constraint, index by index, checks included."""
    declared = create_engine(f"sqlite:///{tmp_path / 'declared.db'}")
    METADATA.create_all(declared)
    with migrated.connect() as left, declared.connect() as right:
        assert statements(left) == statements(right)
    declared.dispose()


def test_autogenerate_finds_no_drift(migrated: Engine) -> None:
    """Alembic sees no difference, types included."""
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_migrating_again_changes_nothing(migrated: Engine) -> None:
    """Every start migrates; a database of this version stays as it is."""
    with migrated.begin() as connection:
        before = statements(connection)
        upgrade(connection)
        assert statements(connection) == before


def test_the_way_down_leaves_nothing(migrated: Engine) -> None:
    """Downgrading to the beginning drops every table."""
    with migrated.begin() as connection:
        command.downgrade(configuration(connection), "base")
    assert inspect(migrated).get_table_names() == ["alembic_version"]


def test_every_tenants_row_names_its_tenant() -> None:
    """Each table has an organization, but for those of no tenant, and points by composite keys alone."""
    for table in METADATA.sorted_tables:
        if table.name in {"organizations", "login_failures"}:
            continue
        assert "organization_id" in table.columns, table.name
        for constraint in table.foreign_key_constraints:
            assert "organization_id" in constraint.column_keys, (table.name, constraint.name)
            target = constraint.referred_table.name
            scoped = {"agents", "approvals", "permissions", "api_keys", "environments", "log_entries"}
            columns = set(constraint.column_keys)
            assert target not in scoped or columns & {"environment", "name"}, (table.name, constraint.name)
        assert not table.columns["organization_id"].nullable


MOMENT = "2026-01-01T00:00:00.000000Z"


@pytest.fixture
def tenants(migrated: Engine) -> Iterator[sqlite3.Connection]:
    """Organizations `a` and `b`, each with both environments, a user, and an agent in either environment."""
    with closing(sqlite3.connect(str(migrated.url.database), isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for name in ("a", "b"):
            insert(connection, "organizations", id=name, name=name, slug=name, plan="free", is_active=1)
            insert(
                connection,
                "users",
                id=f"user-{name}",
                organization_id=name,
                email=name,
                password_hash="x",
                role="admin",
                version=1,
            )
            for environment in ("production", "test"):
                connection.execute("INSERT INTO environments VALUES (?, ?, 0)", (name, environment))
                insert(connection, "agents", **agent(name, environment), id=f"{environment}-{name}")
        yield connection


def insert(connection: sqlite3.Connection, table: str, **values: object) -> None:
    values = {"created_at": MOMENT} | values
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))


def agent(organization: str, environment: str) -> dict[str, object]:
    return {
        "organization_id": organization,
        "environment": environment,
        "name": "bot",
        "status": "active",
        "created_by": f"user-{organization}",
    }


def permission(agent_id: str, organization: str, environment: str = "production") -> dict[str, object]:
    return {
        "id": "p",
        "agent_id": agent_id,
        "organization_id": organization,
        "environment": environment,
        "action": "a",
        "requires_approval": 0,
        "amount_required": 0,
        "required_approvals": 1,
        "separation_of_duties": 0,
        "created_by": f"user-{organization}",
    }


def entry(agent_id: str, organization: str, environment: str = "production") -> dict[str, object]:
    return {
        "id": "e",
        "agent_id": agent_id,
        "organization_id": organization,
        "environment": environment,
        "action": "a",
        "status": "success",
        "key_id": "k",
    }


def approval(agent_id: str, organization: str, environment: str = "production") -> dict[str, object]:
    return entry(agent_id, organization, environment) | {
        "permission_id": "p",
        "context": "{}",
        "digest": "d",
        "run_id": "",
        "call_id": "",
        "consumed_call_id": "",
        "status": "pending",
        "required_approvals": 1,
        "expires_at": MOMENT,
    }


def api_key(agent_id: str, organization: str, environment: str = "production") -> dict[str, object]:
    return {
        "id": "k",
        "agent_id": agent_id,
        "organization_id": organization,
        "environment": environment,
        "digest": "d",
        "ciphertext": b"c",
        "last_four": "abcd",
    }


ROWS = pytest.mark.parametrize(
    ("table", "row"),
    [("permissions", permission), ("log_entries", entry), ("approvals", approval), ("api_keys", api_key)],
)


@ROWS
def test_a_row_may_point_within_its_tenant(tenants: sqlite3.Connection, table: str, row: object) -> None:
    """The rows that are refused below are refused for what they point at, nothing else."""
    assert callable(row)
    insert(tenants, table, **row("production-a", "a"))


@ROWS
@pytest.mark.parametrize("agent_id", ["production-b", "test-a", "nobody"])
def test_a_row_cannot_point_into_another_tenant(
    tenants: sqlite3.Connection, table: str, row: object, agent_id: str
) -> None:
    """Another organization's agent, or the other environment's, is refused by the database itself."""
    assert callable(row)
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        insert(tenants, table, **row(agent_id, "a"))


def test_nobody_acts_in_another_organization(tenants: sqlite3.Connection) -> None:
    """A foreign user can create no agent and decide no approval, in the database itself."""
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        insert(tenants, "agents", **agent("a", "production") | {"id": "x", "created_by": "user-b"})
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        insert(tenants, "approvals", **approval("production-a", "a") | {"decided_by": "user-b"})


@pytest.mark.parametrize(
    ("table", "column"),
    [("agents", "status"), ("organizations", "plan"), ("users", "role"), ("environments", "name")],
)
def test_words_outside_the_lists_are_refused(tenants: sqlite3.Connection, table: str, column: str) -> None:
    """States are what the specification names, in the database itself."""
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        tenants.execute(f"UPDATE {table} SET {column} = 'something else'")
