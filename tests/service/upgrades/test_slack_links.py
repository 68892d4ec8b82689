"""The update ends all former links to Slack."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine
from support.databases import empty_database, engine

from toolgate_service.db.migrate import configuration

MOMENT = "2026-01-01 00:00:00+00:00"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A database of the revision before links belonged to apps."""
    made = engine(empty_database(tmp_path))
    async with made.begin() as connection:
        await connection.run_sync(upgrade, "0016")
    yield made
    await made.dispose()


def upgrade(connection: Connection, revision: str) -> None:
    command.upgrade(configuration(connection), revision)


def insert(connection: Connection, table: str, **values: Any) -> str:
    """Insert a row with an id of its own, moments included, and return the id."""
    row = {"id": str(uuid.uuid4()), **values}
    if connection.dialect.name == "sqlite":
        row = {
            name: "2026-01-01T00:00:00.000000Z" if value == MOMENT else value for name, value in row.items()
        }
    marks = {
        name: f"CAST('{value}' AS {'timestamptz' if value == MOMENT else 'uuid'})"
        for name, value in row.items()
        if connection.dialect.name == "postgresql"
        and (value == MOMENT or name == "id" or name.endswith("_id"))
        and name not in {"team_id", "slack_user_id"}
    }
    given = {name: value for name, value in row.items() if name not in marks}
    columns = ", ".join(row)
    places = ", ".join(marks.get(name, f":{name}") for name in row)
    connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({places})"), given)
    return str(row["id"])


def prepare(connection: Connection) -> None:
    """Insert an organization with a linked member and its only Slack webhook."""
    organization = insert(
        connection, "organizations", name="a", slug="a", plan="free", is_active=True, created_at=MOMENT
    )
    own = {"organization_id": organization}
    for name in ("production", "test"):
        row = own | {"name": name, "log_bytes": 0}
        connection.execute(
            text(
                "INSERT INTO environments (organization_id, name, log_bytes) VALUES "
                f"({_id(connection, organization)}, :name, :log_bytes)"
            ),
            {"name": row["name"], "log_bytes": 0},
        )
    user = insert(
        connection,
        "users",
        **own,
        email="a@example.com",
        password_hash="x",
        role="admin",
        version=1,
        created_at=MOMENT,
    )
    insert(
        connection, "slack_links", **own, user_id=user, team_id="T1", slack_user_id="U1", created_at=MOMENT
    )
    webhook = insert(
        connection,
        "webhooks",
        **own,
        environment="production",
        kind="slack",
        url="https://hooks.slack.com/…",
        include_context=True,
        is_active=True,
        created_at=MOMENT,
        **{"created_by": user} if connection.dialect.name == "sqlite" else {"created_by": uuid.UUID(user)},
    )
    insert(
        connection,
        "webhook_secrets",
        **own,
        environment="production",
        webhook_id=webhook,
        purpose="slack_signing",
        ciphertext=b"x",
        created_at=MOMENT,
    )


def _id(connection: Connection, value: str) -> str:
    return f"CAST('{value}' AS uuid)" if connection.dialect.name == "postgresql" else f"'{value}'"


async def test_update_copies_no_former_link(database: AsyncEngine) -> None:
    """Replicas of the version before could not end a copy: they delete from their own table only."""
    async with database.begin() as connection:
        await connection.run_sync(prepare)
        await connection.run_sync(upgrade, "0017")
        former, links = [
            (await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()
            for table in ("slack_links", "slack_app_links")
        ]
    assert (former, links) == (1, 0)
