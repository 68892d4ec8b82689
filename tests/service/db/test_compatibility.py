"""A start on a schema that is older, newer, or nobody's."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine
from support.databases import empty_database, engine

from toolgate_service.core.errors import StorageError
from toolgate_service.db import migrate
from toolgate_service.db.database import Database, open_database
from toolgate_service.db.migrate import configuration, schema_of, upgrade

NEWER = """
revision = "{revision}"
down_revision = "{after}"
{contracts}
def upgrade() -> None:
    op.execute("{statement}")
"""


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """A database of this version."""
    made = open_database(empty_database(tmp_path))
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A database without a schema."""
    made = engine(empty_database(tmp_path))
    yield made
    await made.dispose()


def newer(folder: Path, *, contracts: str | None) -> None:
    """Write a version that has one migration more, which takes something away if it says so."""
    folder.mkdir()
    for name in ("env.py", "script.py.mako"):
        (folder / name).write_text((migrate.MIGRATIONS / name).read_text())
    (folder / "versions").mkdir()
    for path in (migrate.MIGRATIONS / "versions").glob("*.py"):
        (folder / "versions" / path.name).write_text(path.read_text())
    statement = "ALTER TABLE agents " + ("DROP COLUMN description" if contracts else "ADD COLUMN later TEXT")
    (folder / "versions" / "9999_later.py").write_text(
        "from alembic import op\n"
        + NEWER.format(
            revision="9999",
            after=newest(),
            statement=statement,
            contracts=f'CONTRACTS = "{contracts}"\n' if contracts else "",
        )
    )


def newest() -> str:
    """Return the newest revision of this version."""
    head = ScriptDirectory(str(migrate.MIGRATIONS)).get_current_head()
    assert head is not None
    return head


async def update(database: Database, folder: Path) -> None:
    """Migrate as the newer version would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "MIGRATIONS", folder)
        async with database.opened() as connection:
            await connection.run_sync(upgrade)


async def test_a_newer_schema_that_takes_nothing_away_is_used(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A gateway that is restarted during an update starts on what the newer version only added to, with a warning."""
    newer(tmp_path / "newer", contracts=None)
    await update(database, tmp_path / "newer")
    for migrating in (True, False):
        caplog.clear()
        await database.start(migrate=migrating)
        assert (
            "schema to 9999; gateways that support at least schema 0013 can use the database, and this gateway "
            f"supports schema {newest()}" in caplog.text
        )
    async with database.opened() as connection:
        assert (await connection.run_sync(schema_of)).current == "9999"


@pytest.mark.parametrize("migrating", [True, False])
async def test_a_newer_schema_that_takes_something_away_is_refused(
    database: Database, tmp_path: Path, migrating: bool
) -> None:
    """Where gateways must know what this one does not, it does not start, and says to upgrade."""
    newer(tmp_path / "newer", contracts="9999")
    await update(database, tmp_path / "newer")
    with pytest.raises(StorageError, match=r"revision '9999'.*upgrade Toolgate on this machine"):
        await database.start(migrate=migrating)


async def test_what_took_away_something_this_version_does_without_is_used(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A contracting migration leaves those alone that know the revision which expanded."""
    newer(tmp_path / "newer", contracts=newest())
    await update(database, tmp_path / "newer")
    await database.start()
    assert f"gateways that support at least schema {newest()} can use the database" in caplog.text


async def test_a_newer_schema_without_a_word_is_refused(bare: AsyncEngine, tmp_path: Path) -> None:
    """An unknown revision, and nothing that says how old a gateway may be: not ours to use."""
    async with bare.begin() as connection:
        await connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        await connection.execute(text("INSERT INTO alembic_version VALUES ('9999')"))
        with pytest.raises(StorageError, match="upgrade Toolgate on this machine"):
            await connection.run_sync(upgrade)


@pytest.mark.parametrize("before", [None, "0013"])
async def test_an_older_schema_is_refused_where_starts_do_not_migrate(
    bare: AsyncEngine, tmp_path: Path, before: str | None
) -> None:
    """With TOOLGATE_MIGRATE=check the refusal names the command, and nothing was changed; then the start goes well."""
    if before is not None:
        async with bare.begin() as connection:
            await connection.run_sync(_at, before)
    database = open_database(bare.url.set(drivername=bare.url.get_backend_name()).render_as_string(False))
    try:
        with pytest.raises(StorageError, match="toolgate db upgrade"):
            await database.start(migrate=False)
        if before is not None:
            async with bare.connect() as connection:
                assert (await connection.run_sync(schema_of)).current == before
        await database.start()
        await database.start(migrate=False)
    finally:
        await database.close()


def _at(connection: Connection, revision: str) -> None:
    command.upgrade(configuration(connection), revision)
