"""A database of the first version comes along: its rows stay, and its people log in."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic import command
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from sqlalchemy import Connection, MetaData, Table, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from support.databases import database_url, engine
from support.gateway import PASSWORD, LiveGateway
from support.insight import vault

from toolgate_service.core.clock import from_wire
from toolgate_service.db.migrate import configuration, upgrade
from toolgate_service.organizations.repository import key_digest

MOMENT = "2026-11-20T22:36:29.123456Z"
KEY = "ak_" + "0" * 37
TENANT = {"organization_id": "0192f0c0-0000-7000-8000-000000000001"}
WORLD = TENANT | {"environment": "production"}
USER = "0192f0c0-0000-7000-8000-000000000002"
AGENT = "0192f0c0-0000-7000-8000-000000000003"
PERMISSION = "0192f0c0-0000-7000-8000-000000000004"
API_KEY = "0192f0c0-0000-7000-8000-000000000005"
OTHER = "0192f0c0-0000-7000-8000-000000000006"


def first_version() -> dict[str, dict[str, Any]]:
    """A row for every table of the first version, as that version wrote it."""
    hasher = PasswordHash((Argon2Hasher(),))
    sealed = vault().seal(KEY, table="ApiKey", row=API_KEY, organization=TENANT["organization_id"])
    return {
        "organizations": {
            "id": TENANT["organization_id"],
            "name": "Acme",
            "slug": "acme",
            "plan": "pro",
            "is_active": True,
            "created_at": MOMENT,
        },
        "environments": TENANT | {"name": "production", "log_bytes": 0},
        "users": TENANT
        | {
            "id": USER,
            "email": "ann@example.test",
            "password_hash": hasher.hash(PASSWORD),
            "role": "admin",
            "version": 3,
            "created_at": MOMENT,
        },
        "sessions": TENANT
        | {"id": OTHER, "user_id": USER, "scope": "full", "created_at": MOMENT, "expires_at": MOMENT},
        "invitations": TENANT
        | {
            "id": OTHER,
            "email": "bob@example.test",
            "role": "member",
            "token_hash": "h",
            "invited_by": USER,
            "created_at": MOMENT,
            "expires_at": MOMENT,
        },
        "password_resets": TENANT
        | {"id": OTHER, "user_id": USER, "token_hash": "h", "created_at": MOMENT, "expires_at": MOMENT},
        "login_failures": {"subject": "pair:x", "failures": 2, "last_failed_at": MOMENT},
        "agents": WORLD
        | {"id": AGENT, "name": "bot", "status": "active", "created_by": USER, "created_at": MOMENT},
        "api_keys": WORLD
        | {
            "id": API_KEY,
            "digest": key_digest(KEY),
            "ciphertext": sealed,
            "last_four": "0000",
            "created_by": USER,
            "created_at": MOMENT,
        },
        "permissions": WORLD
        | {
            "id": PERMISSION,
            "agent_id": AGENT,
            "action": "mail.send",
            "requires_approval": False,
            "max_amount": "99.90",
            "amount_required": False,
            "required_approvals": 1,
            "separation_of_duties": False,
            "created_by": USER,
            "created_at": MOMENT,
        },
        "approvals": WORLD
        | {
            "id": OTHER,
            "agent_id": AGENT,
            "permission_id": PERMISSION,
            "action": "mail.send",
            "context": '{"a":1}',
            "digest": "d",
            "run_id": "",
            "call_id": "",
            "status": "denied",
            "key_id": API_KEY,
            "required_approvals": 1,
            "created_at": MOMENT,
            "expires_at": MOMENT,
            "consumed_call_id": "",
        },
        "approval_votes": WORLD
        | {"approval_id": OTHER, "user_id": USER, "decision": "denied", "note": "no", "created_at": MOMENT},
        "denial_clearances": WORLD
        | {"agent_id": AGENT, "action": "mail.send", "cleared_by": USER, "cleared_at": MOMENT},
        "log_entries": WORLD
        | {
            "id": OTHER,
            "agent_id": AGENT,
            "action": "mail.send",
            "status": "success",
            "context": '{"amount":1.10}',
            "ip_address": "192.0.2.1",
            "created_at": MOMENT,
            "key_id": API_KEY,
        },
        "idempotency_keys": WORLD
        | {
            "surface": "log",
            "key": "k",
            "fingerprint": "f",
            "answer": b"{}",
            "created_at": MOMENT,
            "expires_at": MOMENT,
        },
        "audit_entries": TENANT
        | {"id": OTHER, "kind": "agent.created", "user_id": USER, "created_at": MOMENT},
        "monthly_usage": WORLD | {"month": "2026-11", "log_entries": 1},
    }


@pytest.fixture
async def first(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A database that the first version left, with a row in every table but the one of the current minute."""
    made = engine(database_url(tmp_path))
    async with made.begin() as connection:
        await connection.run_sync(_back_to_the_first)
        for table, row in first_version().items():
            await _insert(connection, table, row)
        names = await connection.run_sync(lambda sync: set(inspect(sync).get_table_names()))
        assert names - {"alembic_version", "rate_windows"} == first_version().keys()
    yield made
    await made.dispose()


async def test_rows_of_the_first_version_stay(first: AsyncEngine) -> None:
    """Every row of every table has the values it had, column by column."""
    async with first.begin() as connection:
        before = {table: await _rows(connection, table) for table in first_version()}
        await connection.run_sync(upgrade)
        for table, rows in before.items():
            [after] = await _rows(connection, table)
            assert len(rows) == 1
            assert rows[0].items() <= after.items(), table


async def test_the_log_of_the_first_version_is_counted(first: AsyncEngine) -> None:
    """Its one entry stands in its hour, on its agent's day, and on its action's."""
    async with first.begin() as connection:
        await connection.run_sync(upgrade)
        hours, days = await _rows(connection, "log_counts"), await _rows(connection, "day_counts")
    whose = {name: hours[0][name] for name in WORLD}
    assert {name: str(value) for name, value in whose.items()} == WORLD
    counted = {"succeeded": 1, "failed": 0, "blocked": 0, "held": 0}
    hour = int(from_wire(MOMENT).timestamp()) // 3600
    assert hours == [whose | counted | {"subject": "all", "span": 60, "starts": hour * 60, "name": ""}]
    assert sorted(days, key=lambda row: str(row["subject"])) == [
        whose | counted | {"subject": subject, "name": name, "day": hour // 24, "total": 1}
        for subject, name in (("action", "mail.send"), ("agent", AGENT))
    ]


async def test_people_and_agents_of_the_first_version_go_on(first: AsyncEngine, tmp_path: Path) -> None:
    """The gateway migrates by itself: the old password logs in, the old key checks and is shown again."""
    with LiveGateway(tmp_path) as gateway:
        await asyncio.to_thread(_go_on, gateway.url)


def _go_on(url: str) -> None:
    with httpx.Client(base_url=url, timeout=30) as client:
        check = {"agent_id": AGENT, "action": "mail.send", "context": {"amount": 99.90}}
        assert client.post("/sdk/check", json=check, headers={"X-API-Key": KEY}).json()["allowed"] is True
        login = client.post("/auth/login", json={"email": "ann@example.test", "password": PASSWORD})
        assert login.status_code == 200, login.text
        client.headers["Authorization"] = f"Bearer {login.json()['access_token']}"
        assert client.get("/api/organization").json()["api_key"] == KEY
        assert [entry["context"] for entry in client.get("/api/logs").json()] == [{"amount": 1.10}]


def _back_to_the_first(connection: Connection) -> None:
    upgrade(connection)
    command.downgrade(configuration(connection), "0001")


async def _insert(connection: AsyncConnection, table: str, row: dict[str, Any]) -> None:
    reflected = await connection.run_sync(lambda sync: Table(table, MetaData(), autoload_with=sync))
    moments = connection.dialect.name == "postgresql"
    values = {name: from_wire(value) if moments and value == MOMENT else value for name, value in row.items()}
    await connection.execute(reflected.insert().values(values))


async def _rows(connection: AsyncConnection, table: str) -> list[dict[str, Any]]:
    found = await connection.execute(text(f"SELECT * FROM {table}"))
    return [dict(row) for row in found.mappings()]
