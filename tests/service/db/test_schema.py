"""The schema: migrations and models agree, on every database."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect
from sqlalchemy.ext.asyncio import AsyncEngine
from support.databases import Server, empty_database, engine
from support.postgres import Cluster
from support.postgres_versions import installations

from toolgate_service.db.migrate import configuration, upgrade
from toolgate_service.migrations.metadata import METADATA

PART = re.compile("log_entries_(past|default|[0-9_]+)$")
CATALOGUES = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'alembic_version'",
    "postgresql": """
        SELECT conname, pg_get_constraintdef(pg_constraint.oid) FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
        WHERE connamespace = 'public'::regnamespace AND relname <> 'alembic_version' AND NOT relispartition
        UNION ALL
        SELECT indexname, indexdef FROM pg_indexes JOIN pg_class ON pg_class.oid = (schemaname || '.' || tablename)::regclass
        WHERE schemaname = 'public' AND tablename <> 'alembic_version' AND NOT relispartition
        UNION ALL
        SELECT partrelid::regclass::text, pg_get_partkeydef(partrelid) FROM pg_partitioned_table
        UNION ALL
        SELECT attrelid::regclass || '.' || attname,
            format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' || coalesce(pg_get_expr(adbin, adrelid), '')
        FROM pg_attribute LEFT JOIN pg_attrdef ON (attrelid, attnum) = (adrelid, adnum)
        JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND attnum > 0
            AND relname <> 'alembic_version' AND NOT relispartition
    """,
}


@pytest.fixture
async def migrated(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A database that the migrations made."""
    made = engine(empty_database(tmp_path))
    async with made.begin() as connection:
        await connection.run_sync(upgrade)
    yield made
    await made.dispose()


def statements(connection: Connection) -> dict[str, list[str]]:
    """Return what the database says each thing in it is made of, order aside."""
    found = connection.exec_driver_sql(CATALOGUES[connection.dialect.name]).fetchall()
    # SQLite writes a column that was added later on the line of the one before.
    apart = re.compile(r"\n|, (?=\w+ [A-Z])")
    return {
        name: sorted(part.strip().rstrip(",").strip() for part in apart.split(made_of))
        for name, made_of in found
        # Triggers are made by the migrations alone, and tested by what they do.
        if "_epoch_" not in name
    }


def differences(connection: Connection) -> object:
    """Return what Alembic would change, types included."""
    # Of a table in months, the months are no tables of their own.
    opts = {
        "compare_type": True,
        "include_name": lambda name, kind, _: kind != "table" or not PART.match(name),
    }
    return compare_metadata(MigrationContext.configure(connection, opts=opts), METADATA)


def downgrade(connection: Connection) -> None:
    """Take every migration back."""
    command.downgrade(configuration(connection), "base")


async def test_the_migrations_make_what_the_models_say(migrated: AsyncEngine, tmp_path: Path) -> None:
    """Column by column, constraint by constraint, index by index, checks included."""
    (tmp_path / "declared").mkdir()
    declared = engine(empty_database(tmp_path / "declared"))
    async with declared.begin() as connection:
        await connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
        await connection.run_sync(METADATA.create_all)
    async with migrated.connect() as left, declared.connect() as right:
        found = await left.run_sync(statements)
        assert len(found) > len(METADATA.tables)
        assert found == await right.run_sync(statements)
    await declared.dispose()


async def test_autogenerate_finds_no_drift(migrated: AsyncEngine) -> None:
    """Alembic sees no difference, types included."""
    async with migrated.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_migrating_again_changes_nothing(migrated: AsyncEngine) -> None:
    """Every start migrates; a database of this version stays as it is."""
    async with migrated.begin() as connection:
        before = await connection.run_sync(statements)
        await connection.run_sync(upgrade)
        assert await connection.run_sync(statements) == before


async def test_the_way_down_leaves_nothing(migrated: AsyncEngine) -> None:
    """Downgrading to the beginning drops every table."""
    async with migrated.begin() as connection:
        await connection.run_sync(downgrade)
        left = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    assert left == ["alembic_version"]


@pytest.fixture(params=["oldest", "newest"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the oldest, or of the newest version of PostgreSQL at hand."""
    found = installations()
    with Cluster(found[0] if request.param == "oldest" else found[-1]) as cluster:
        yield Server(cluster.url())


@pytest.mark.postgresql_only("SQLite has no servers of several versions")
async def test_every_version_has_the_schema_and_loses_it(server: Server) -> None:
    """On the oldest and on the newest server the migrations make what the models say, and the way down works."""
    made = engine(server.url_of(server.create_database(migrated=False)))
    async with made.begin() as connection:
        await connection.run_sync(upgrade)
        assert await connection.run_sync(differences) == []
        await connection.run_sync(downgrade)
    await made.dispose()
