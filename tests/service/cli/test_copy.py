"""`toolgate db copy`: everything that an embedded file has is on the server, and a gateway there answers the same."""

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import sqlalchemy as sa
from support.admin import done
from support.databases import Server, finished
from support.gateway import PASSWORD, LiveGateway, Owner
from support.operating import Operator
from support.postgres import Cluster
from support.postgres_versions import installations
from support.provider import fresh, invoice, subscription, tell
from support.tables import execute, rows
from support.waiting import until
from support.walk.everything import ENV
from support.walk.stage import Stage
from support.wire import Wire

from toolgate_service.core.clock import wire
from toolgate_service.core.ids import new_id
from toolgate_service.db.models import Id, Timestamp
from toolgate_service.migrations.metadata import METADATA

pytestmark = pytest.mark.sqlite_only("the embedded file is what is copied")

#: what either database's migrations write for themselves
OF_THE_SCHEMA = {"schema_floor", "epochs"}
TABLES = [table for table in METADATA.sorted_tables if table.name not in OF_THE_SCHEMA]
MOMENT = "2026-11-20T22:36:29.000001Z"
#: what a gateway answers that knows the owner's token; to show a key is audited, and so the audit is read last
ASKED = (
    "/auth/me",
    "/api/agents",
    "/api/logs",
    "/api/logs?environment=test",
    "/api/approvals",
    "/api/grants",
    "/api/team",
    "/api/webhooks",
    "/api/organization",
    "/api/billing/usage",
    "/api/billing/subscription",
    "/api/billing/invoices",
    "/api/slack/links",
    "/api/audit",
)


@dataclass(frozen=True, slots=True)
class Filled:
    """An embedded database with rows in every table, which nobody serves any more.

    Attributes:
        gateway: that of the file.
        owner: the admin of an organization, whose client has a valid token.
        agent: the agent of what follows.
        held: an approval that was approved and not used.
        answers: what the gateway answered.
        logged: the answer of the entry sent under the key `once`.
    """

    gateway: LiveGateway
    owner: Owner
    agent: str
    held: str
    answers: Mapping[str, Any]
    logged: Any


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Everything a gateway can hold, in a file."""
    with LiveGateway(tmp_path_factory.mktemp("filled"), env=ENV) as gateway, Stage(gateway) as stage:
        for environment in ("production", "test"):
            stage.things(environment, people=True, sealed=True)
        owner = stage.owner
        owner.key = stage.key
        agent, held, logged = _live(stage)
        answers = {path: owner.http.get(path).json() for path in ASKED}
        gateway.stop()
        # Now, as its upkeep would remove what is old.
        _fill_what_is_empty(gateway, owner)
        yield Filled(gateway, owner, agent, held, answers, logged)


def _live(stage: Stage) -> tuple[str, str, Any]:
    owner = stage.owner
    agent = owner.agent("copied 🐎")
    owner.permit(agent, "pay", requires_approval=True, max_amount=99.9)
    held = owner.check(agent, "pay", {"amount": 1.10, "to": "Zoë"}).json()["approval_id"]
    assert owner.http.post(f"/api/approvals/{held}/approve", json={"note": "so be it"}).status_code == 200
    other = owner.check(agent, "pay", {"amount": 2}).json()["approval_id"]
    assert owner.http.post(f"/api/approvals/{other}/deny").status_code == 200
    cleared = owner.http.delete(f"/api/agents/{agent}/denial-blocks", params={"action": "pay"})
    assert cleared.status_code == 204, cleared.text
    budget = {"name": "copied", "actions": ["spend"], "window": "day", "limit": 5}
    assert owner.http.post("/api/budgets", json=budget).status_code == 201
    owner.permit(agent, "spend")
    assert owner.check(agent, "spend").json()["allowed"]
    shadow = {"policy": {"version": "toolgate.policy/v1"}, "message": "copied"}
    assert owner.http.put("/api/policy/shadow", json=shadow).status_code == 200
    assert owner.check(agent, "spend").json()["allowed"]
    owner.http.post("/auth/password-reset", json={"email": owner.email})
    owner.http.post("/auth/login", json={"email": owner.email, "password": "wrong wrong wrong"})
    customer = fresh("cus")
    done(stage.gateway, "link-customer", owner.email, customer)
    tell(stage.gateway.url, "customer.subscription.updated", subscription(customer))
    tell(stage.gateway.url, "invoice.paid", invoice(customer))
    body = {"agent_id": agent, "action": "pay", "status": "success", "context": {"amount": 1.10, "to": "Zoë"}}
    headers = {"X-API-Key": owner.key, "Idempotency-Key": "once"}
    answer = owner.http.post("/sdk/log", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    until(lambda: rows(stage.gateway, "SELECT 1 FROM heartbeats"))
    return agent, held, answer.json()


def _fill_what_is_empty(gateway: LiveGateway, owner: Owner) -> None:
    """Write rows that only other settings, other databases or a wait would make."""
    organization, user = owner.user["organization_id"], owner.user["id"]
    by_hand: dict[str, dict[str, Any]] = {
        "rate_windows": {"organization_id": organization, "scope": "key", "minute": 7, "requests": 3},
        "day_counts": {
            "organization_id": organization,
            "environment": "test",
            "subject": "action",
            "name": "pay",
            "day": 20_000,
            "succeeded": 2**40,
            "failed": 0,
            "blocked": 0,
            "held": 0,
            "total": 2**40,
        },
        "deactivations": {"organization_id": organization, "cause": "payment", "created_at": MOMENT},
        # Only gateways of earlier versions write this table.
        "slack_links": {
            "id": new_id(),
            "organization_id": organization,
            "user_id": user,
            "team_id": "T1DC2JH3J",
            "slack_user_id": "U2CERLKJA",
            "created_at": MOMENT,
        },
        # Only an operator's token creates these rows.
        "scratch_organizations": {
            "organization_id": organization,
            "created_at": MOMENT,
            "expires_at": "2999-01-01T00:00:00.000000Z",
        },
        "password_resets": {
            "id": new_id(),
            "organization_id": organization,
            "user_id": user,
            "token_hash": "h",
            "created_at": MOMENT,
            "expires_at": MOMENT,
        },
    }
    for table, row in by_hand.items():
        if not rows(gateway, f"SELECT 1 FROM {table}"):
            marks = ", ".join("?" * len(row))
            execute(gateway, f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server to move to."""
    with Cluster(installations()[-1]) as cluster:
        yield Server(cluster.url())


@pytest.fixture(scope="module")
def copied(filled: Filled, server: Server) -> tuple[str, dict[str, Any]]:
    """The file's copy, and what the command told of it."""
    url = server.url_of(server.create_database(migrated=False))
    return url, Operator.of(filled.gateway).told("copy", "--to", url)


def test_every_row_of_every_table_arrives(filled: Filled, copied: tuple[str, dict[str, Any]]) -> None:
    """Table by table both hold the same values, of the same types; no table is left out, and none was empty."""
    url, said = copied
    assert list(said["tables"]) == [table.name for table in TABLES]
    there = finished(_on_server(url))
    with closing(sqlite3.connect(filled.gateway.database)) as connection:
        for table in TABLES:
            here = sorted(
                (_as_python(table, row) for row in connection.execute(_query(table)).fetchall()), key=repr
            )
            assert here, f"{table.name} has no row: write one in _live, or by hand in _fill_what_is_empty"
            assert here == sorted(there[table.name], key=repr), table.name
            assert said["tables"][table.name]["rows"] == len(here)
    assert len({one["sha256"] for one in said["tables"].values()}) == len(TABLES)


def _query(table: sa.Table) -> str:
    return f"SELECT {', '.join(column.name for column in table.columns)} FROM {table.name}"


def _as_python(table: sa.Table, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row of the file, whose booleans are numbers."""
    return tuple(
        bool(value) if isinstance(column.type, sa.Boolean) and value is not None else value
        for column, value in zip(table.columns, row, strict=True)
    )


async def _on_server(url: str) -> dict[str, list[tuple[Any, ...]]]:
    connection = await asyncpg.connect(url)
    try:
        return {
            table.name: [
                tuple(
                    value if value is None else _as_text(column, value)
                    for column, value in zip(table.columns, record, strict=True)
                )
                for record in await connection.fetch(_query(table))
            ]
            for table in TABLES
        }
    finally:
        await connection.close()


def _as_text(column: sa.Column[Any], value: Any) -> Any:
    match column.type:
        case Id():
            return str(value)
        case Timestamp():
            return wire(value)
    return value


def test_a_gateway_on_the_copy_answers_the_same(
    filled: Filled, copied: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    """Tokens, keys, lists, an approval that waits to be used, and an entry's key are what they were."""
    url, _ = copied
    owner = filled.owner
    with LiveGateway(tmp_path, env=ENV | {"TOOLGATE_DATABASE_URL": url}) as gateway:
        with httpx.Client(base_url=gateway.url, headers=owner.http.headers, timeout=30) as client:
            assert {path: client.get(path).json() for path in reversed(ASKED)} == filled.answers
            body = {
                "agent_id": filled.agent,
                "action": "pay",
                "status": "success",
                "context": {"amount": 1.10, "to": "Zoë"},
            }
            headers = {"X-API-Key": owner.key, "Idempotency-Key": "once"}
            assert client.post("/sdk/log", json=body, headers=headers).json() == filled.logged
            assert len(client.get("/api/logs", params={"agent_id": filled.agent}).json()) == 1
            login = {"email": owner.email, "password": PASSWORD}
            assert client.post("/auth/login", json=login).status_code == 200
        with Wire.of(owner, gateway.url) as agent:
            passed = [agent.allowed(filled.agent, "pay", amount=1.10, to="Zoë") for _ in range(2)]
        assert passed == [True, False]


def test_what_is_not_empty_is_refused(filled: Filled, copied: tuple[str, dict[str, Any]]) -> None:
    """Copying again is refused by the first table that has rows, and nothing is written."""
    url, _ = copied
    before = finished(_counts(url))
    assert "is not empty" in Operator.of(filled.gateway).refused("copy", "--to", url)
    assert finished(_counts(url)) == before


async def _counts(url: str) -> dict[str, int]:
    connection = await asyncpg.connect(url)
    try:
        return {
            table.name: await connection.fetchval(f"SELECT count(*) FROM {table.name}") for table in TABLES
        }
    finally:
        await connection.close()


@pytest.mark.slow
def test_what_the_server_does_not_take_leaves_it_empty(
    filled: Filled, server: Server, tmp_path: Path
) -> None:
    """A row that PostgreSQL refuses, in the last of the tables, takes everything back; its values are not told."""
    broken = tmp_path / "broken.db"
    with (
        closing(sqlite3.connect(filled.gateway.database)) as source,
        closing(sqlite3.connect(broken)) as target,
    ):
        source.backup(target)
        target.execute("UPDATE grant_votes SET note = 'hunter2' || char(0)")
        target.commit()
    url = server.url_of(server.create_database())
    told = Operator.of(filled.gateway).refused("copy", "--to", url, "--database-url", f"sqlite:///{broken}")
    assert "'grant_votes'" in told
    assert "nothing was copied" in told
    assert "hunter2" not in told
    assert set(finished(_counts(url)).values()) == {0}


def test_a_row_that_arrives_changed_is_seen(filled: Filled, server: Server) -> None:
    """What a trigger of the server's makes of a row is no copy: the command says which row, and takes everything back."""
    url = server.url_of(server.create_database())
    trigger = """
        CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW.description := 'changed'; RETURN NEW; END $$;
        CREATE TRIGGER change BEFORE INSERT ON agents FOR EACH ROW EXECUTE FUNCTION change()
    """
    finished(_execute(url, trigger))
    told = Operator.of(filled.gateway).refused("copy", "--to", url)
    assert "of 'agents' in PostgreSQL differs" in told
    assert set(finished(_counts(url)).values()) == {0}


@pytest.mark.slow
def test_a_server_that_goes_away_leaves_it_empty(filled: Filled, server: Server) -> None:
    """A connection that ends in the middle is told in one line, and nothing was copied."""
    url = server.url_of(server.create_database())
    trigger = """
        CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
        CREATE TRIGGER leave BEFORE INSERT ON agents FOR EACH ROW EXECUTE FUNCTION leave()
    """
    finished(_execute(url, trigger))
    assert "the copy to PostgreSQL failed" in Operator.of(filled.gateway).refused("copy", "--to", url)
    assert set(finished(_counts(url)).values()) == {0}


@pytest.mark.slow
def test_a_table_that_somebody_holds(filled: Filled, server: Server) -> None:
    """Where another session keeps a table to itself, the command gives up after ten seconds and says so."""
    url = server.url_of(server.create_database())

    async def hold() -> str:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                await connection.execute("LOCK TABLE agents IN ACCESS SHARE MODE")
                return await asyncio.to_thread(Operator.of(filled.gateway).refused, "copy", "--to", url)
        finally:
            await connection.close()

    assert "run this command again" in finished(hold())
    assert set(finished(_counts(url)).values()) == {0}


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def test_a_file_that_is_served_is_refused(server: Server, tmp_path: Path) -> None:
    """While a gateway has it open nothing is copied; one that would start meanwhile is kept out."""
    url = server.url_of(server.create_database())
    with LiveGateway(tmp_path) as gateway:
        assert "is in use: stop every gateway" in Operator.of(gateway).refused("copy", "--to", url)
        with Owner(gateway.url) as owner:
            owner.agent()
    assert set(finished(_counts(url)).values()) == {0}


def test_passwords_are_not_told(tmp_path: Path) -> None:
    """Neither a server that is not there nor the command's own words show the password of a URL."""
    with LiveGateway(tmp_path) as gateway:
        operator = Operator.of(gateway)
    away = "postgresql://ada:hunter2@127.0.0.1:1/toolgate"
    nowhere = away.replace(":1/", ":99999/")
    for url, words in (
        (away, "of --to"),
        (nowhere, "of --to"),
        ("sqlite:///x", "a SQLite file"),
        ("mysql://x:hunter2@y", "does not support"),
    ):
        told = operator.refused("copy", "--to", url)
        assert words in told
        assert "hunter2" not in told
    for asked in (("check", "--database-url", away), ("upgrade", "--database-url", nowhere)):
        assert "hunter2" not in operator.refused(*asked)
