"""Schema migrations, and the check whether this version of the gateway can use the schema of a newer version.

During a rolling update, gateways of two versions use the same database. The newer version migrates the schema. It also
stores the oldest schema revision that a gateway must know to use the new schema. If an older gateway restarts, it reads
this value to decide whether it can use the schema.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, inspect, text
from sqlmodel import Field

from toolgate_service.core.errors import StorageError
from toolgate_service.db.models import Table

#: Name of the attribute that a migration defines if it removes a table or a column. The value of the attribute is a
#: schema revision: gateways that know this revision no longer use the removed table or column.
CONTRACTS = "CONTRACTS"

_READ = text("SELECT revision FROM schema_floor")
_RAISE = text("UPDATE schema_floor SET revision = :revision")


class SchemaFloor(Table, table=True):
    """Table with a single row: the oldest schema revision that a gateway must know to use the current schema."""

    __tablename__ = "schema_floor"

    revision: str = Field(primary_key=True, max_length=32)


def floor_of(connection: Connection) -> str | None:
    """Return the oldest schema revision that a gateway must know to use this schema; None if it is not stored.

    A gateway without the migration of this revision is too old to use the schema.
    """
    if not inspect(connection).has_table(SchemaFloor.__tablename__):
        return None
    found: str | None = connection.execute(_READ).scalar()
    return found


def raise_floor(connection: Connection, revision: str) -> None:
    """Store the oldest schema revision that a gateway must know to use the current schema."""
    connection.execute(_RAISE, {"revision": revision})


logger = logging.getLogger("toolgate.gateway")

MIGRATIONS = Path(__file__).parent.parent / "migrations"


@dataclass(frozen=True, slots=True)
class Step:
    """Schema migration: its revision and a summary of one line."""

    revision: str
    summary: str


@dataclass(frozen=True, slots=True)
class Schema:
    """State of a database schema compared with the migrations of this version of the gateway.

    Attributes:
        current: Revision of the database schema; None for an empty database.
        newest: Latest revision of this version of the gateway.
        steps: All migrations of this version, in the order in which they run.
        pending: Migrations that have not run on this database.
        known: True if `current` is None, or is a revision of this version of the gateway.
        floor: For an unknown revision, the oldest revision that a gateway must know to use the schema; None if it is
            not stored.
        usable: For an unknown revision, True if this version can use the schema.
    """

    current: str | None
    newest: str
    steps: Sequence[Step]
    pending: Sequence[Step]
    known: bool
    floor: str | None
    usable: bool


def configuration(connection: Connection) -> Config:
    """Return the configuration of Alembic for an open connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


@cache
def _steps(folder: Path) -> Sequence[Step]:
    # Cache the migrations, because a gateway needs them several times, and importing their scripts takes 50 ms.
    scripts = ScriptDirectory(str(folder)).walk_revisions("base", "heads")
    return [Step(one.revision, (one.doc or "").rstrip(".")) for one in scripts][::-1]


def schema_of(connection: Connection) -> Schema:
    """Return the state of a database schema without changing it.

    Raises:
        StorageError: The database contains an invalid revision.
    """
    steps = _steps(MIGRATIONS)
    revisions = [step.revision for step in steps]
    try:
        current = MigrationContext.configure(connection).get_current_revision()
    except CommandError as error:
        raise _unknown(str(error)) from error
    known = current is None or current in revisions
    floor = None if known else floor_of(connection)
    pending = steps[revisions.index(current) + 1 if current else 0 :] if known else []
    return Schema(current, revisions[-1], steps, pending, known, floor, usable=floor in revisions)


def upgrade(connection: Connection) -> None:
    """Create the schema or run all pending migrations, in the transaction of the connection.

    The schema of a newer version is not changed.

    Raises:
        StorageError: A newer version migrated the schema, and this version cannot use it.
    """
    schema = schema_of(connection)
    if schema.known and schema.pending:
        command.upgrade(configuration(connection), "head")
    elif not schema.known:
        _use_unknown(schema)


def upgrade_once(connection: Connection) -> bool:
    """Run the next pending migration, or all migrations if the database is empty.

    Returns:
        True if more migrations are pending.

    Raises:
        StorageError: A newer version migrated the schema, and this version cannot use it.
    """
    schema = schema_of(connection)
    if schema.current is None or len(schema.pending) < 2:  # noqa: PLR2004 - at most one migration is left
        upgrade(connection)
        return False
    command.upgrade(configuration(connection), schema.pending[0].revision)
    return True


def require_current(connection: Connection) -> None:
    """Raise an error if this version cannot use the schema. The schema is not changed.

    Raises:
        StorageError: Migrations are pending, or a newer version migrated the schema and this version cannot use it.
    """
    schema = schema_of(connection)
    if schema.pending:
        state = f"is at {schema.current}" if schema.current else "does not exist"
        raise StorageError(
            f"the database's schema {state}, and this version needs {schema.newest}; the gateway does not "
            "migrate the schema, because TOOLGATE_MIGRATE is set to 'check': run 'toolgate db upgrade'"
        )
    if not schema.known:
        _use_unknown(schema)


def _use_unknown(schema: Schema) -> None:
    if not schema.usable:
        raise _unknown(
            f"it is at revision {schema.current!r}, and this version of Toolgate supports revisions up "
            f"to {schema.newest!r}"
        )
    logger.warning(
        "a newer version of Toolgate migrated the database's schema to %s; gateways that support at least schema %s "
        "can use the database, and this gateway supports schema %s",
        schema.current,
        schema.floor,
        schema.newest,
    )


def _unknown(reason: str) -> StorageError:
    return StorageError(
        f"this version of Toolgate cannot use the database's schema ({reason}); a newer version probably migrated it: "
        "upgrade Toolgate on this machine"
    )
