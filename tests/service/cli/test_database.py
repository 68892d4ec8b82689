"""`toolgate db current`, `check` and `upgrade`, on a database of this version, an older one, and none."""

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Connection, make_url, text
from support.databases import empty_database, engine, finished
from support.gateway import SECRET, LiveGateway
from support.operating import Operator

from toolgate_service.cli.database import check, upgrade
from toolgate_service.db.migrate import configuration


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """The operator of a database that has nothing in it."""
    return Operator(
        {
            "HOME": str(tmp_path),
            "TOOLGATE_DATABASE_URL": empty_database(tmp_path),
            "TOOLGATE_SECRET": SECRET,
        }
    )


@pytest.fixture
def older(operator: Operator) -> Operator:
    """The operator of a database that the version before left."""
    finished(_work(operator, lambda connection: command.upgrade(configuration(connection), "0013")))
    return operator


async def _work(operator: Operator, work: object) -> None:
    made = engine(operator.env["TOOLGATE_DATABASE_URL"])
    try:
        async with made.begin() as connection:
            await connection.run_sync(work)  # type: ignore[arg-type]  # a function of a connection
    finally:
        await made.dispose()


def say(operator: Operator, statement: str) -> None:
    """Change the database behind the gateway's back."""

    def work(connection: Connection) -> None:
        connection.execute(text(statement))

    finished(_work(operator, work))


def test_an_older_schema_is_brought_up_to_date(older: Operator) -> None:
    """What is pending is told, shown as statements, and done when asked for; only then the check is content."""
    said = older.told("current")
    assert said["current"] == "0013"
    pending = said["pending"]
    assert pending[0]["revision"] == "0014"
    assert older.told("upgrade", "--dry-run")["pending"] == pending
    statements = older.told("upgrade", "--sql")["statements"]
    assert any("CREATE TABLE schema_floor" in statement for statement in statements)
    assert older.told("current") == said
    [problem] = older.told("check", status=1)["problems"]
    assert "run: toolgate db upgrade" in problem
    assert older.told("upgrade")["ran"] == pending
    assert older.told("check")["ok"] is True
    assert older.told("current")["pending"] == []
    assert older.done("upgrade") == older.done("upgrade", "--dry-run") == older.done("upgrade", "--sql")


def test_a_gateway_that_may_not_migrate_says_the_command(older: Operator, tmp_path: Path) -> None:
    """TOOLGATE_MIGRATE=check refuses the older schema, and starts after `toolgate db upgrade`."""
    gateway = LiveGateway(tmp_path, env=older.env | {"TOOLGATE_MIGRATE": "check"})
    with pytest.raises(AssertionError, match="did not start"):
        gateway.start()
    gateway.kill()
    older.done("upgrade")
    with gateway:
        pass


def test_nothing_becomes_a_schema(operator: Operator) -> None:
    """An upgrade makes what is not there, with every migration."""
    ran = operator.told("upgrade")["ran"]
    assert [step["revision"] for step in ran][:2] == ["0001", "0002"]
    assert operator.run("check").returncode == 0


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "DROP INDEX ix_approvals_decided",
            "the index approvals.ix_approvals_decided is missing in the database",
        ),
        pytest.param(
            "ALTER TABLE agents ADD COLUMN mine TEXT",
            "mine exists in the database, but not in this version of Toolgate",
            marks=pytest.mark.slow,
        ),
        pytest.param("DROP TABLE invoices", "invoices is missing in the database", marks=pytest.mark.slow),
        ("CREATE TABLE of_somebody_else (a INTEGER)", None),
    ],
)
def test_whatever_the_schema_lacks_is_named(operator: Operator, statement: str, words: str | None) -> None:
    """A check names what models and tables disagree on; tables of others are none of its business."""
    operator.done("upgrade")
    say(operator, statement)
    ended = operator.run("check")
    assert ended.returncode == (0 if words is None else 1)
    assert words is None or words in ended.stdout


@pytest.mark.sqlite_only("a server checks itself")
def test_rows_that_point_nowhere_are_found(operator: Operator, tmp_path: Path) -> None:
    """A row whose organization is gone fails the check."""
    operator.done("upgrade")
    say(operator, "PRAGMA foreign_keys = OFF")
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "new.db")) as connection, connection:
        connection.execute("INSERT INTO environments VALUES ('x', 'production', 0)")
    [problem] = operator.told("check", status=1)["problems"]
    assert "of environments refers to a row of organizations" in problem


@pytest.mark.slow
@pytest.mark.sqlite_only("about a file")
def test_a_file_that_is_none(operator: Operator, tmp_path: Path) -> None:
    """No file is made by looking, and what is no database is named."""
    missing, notes = tmp_path / "missing.db", tmp_path / "notes"
    notes.write_text("mine" * 5000)
    for asked in (("current",), ("check",), ("upgrade", "--dry-run"), ("upgrade", "--sql")):
        assert "does not exist; set TOOLGATE_DATABASE_URL" in operator.refused(
            *asked, "--database-url", f"sqlite:///{missing}"
        )
        assert str(notes) in operator.refused(*asked, "--database-url", f"sqlite:///{notes}")
    assert not missing.exists()
    assert notes.read_text() == "mine" * 5000


@pytest.mark.slow
@pytest.mark.postgresql_only("a file has no schemas")
def test_a_schema_may_have_any_name(operator: Operator) -> None:
    """With capitals, or with a space in it: what is in it is made, and found whole."""
    url = operator.env["TOOLGATE_DATABASE_URL"]
    say(operator, 'CREATE SCHEMA "My Tools"')
    say(operator, f'ALTER DATABASE {make_url(url).database} SET search_path = "My Tools"')
    upgrade(url)
    report = check(url)
    assert report.good, report.lines


def test_a_newer_schema_is_told(operator: Operator) -> None:
    """What a newer version wrote is never touched; the commands say whether this one may use it."""
    operator.done("upgrade")
    say(operator, "UPDATE alembic_version SET version_num = '9999'")
    assert operator.told("current")["usable"] is True
    assert "and this version can use the schema" in operator.told("check", status=1)["problems"][0]
    say(operator, "UPDATE schema_floor SET revision = '9998'")
    assert operator.told("current")["usable"] is False
    assert "upgrade Toolgate on this machine" in operator.refused("upgrade")
