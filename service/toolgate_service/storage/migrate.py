"""Bringing a database's schema up to date, or seeing to it that it is."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection

from toolgate_service.errors import StorageError
from toolgate_service.storage.floor import floor_of

logger = logging.getLogger("toolgate.gateway")

MIGRATIONS = Path(__file__).parent.parent / "migrations"


@dataclass(frozen=True, slots=True)
class Step:
    """A migration.

    Attributes:
        revision: its number.
        summary: what it does, in one line.
    """

    revision: str
    summary: str


@dataclass(frozen=True, slots=True)
class Schema:
    """How a database's schema stands to this version.

    Attributes:
        current: its revision; None where there is none yet.
        newest: the revision that this version makes.
        steps: every migration of this version, in order.
        pending: those of them that are still to run.
        known: whether this version knows the revision.
        floor: the oldest revision that a gateway must know to use the schema, if that was written down.
        usable: whether this version may use it, although it does not know it.
    """

    current: str | None
    newest: str
    steps: Sequence[Step]
    pending: Sequence[Step]
    known: bool
    floor: str | None
    usable: bool


def configuration(connection: Connection) -> Config:
    """Return Alembic's configuration for one open connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def schema_of(connection: Connection) -> Schema:
    """Return how a database's schema stands to this version; nothing is changed.

    Raises:
        StorageError: nobody's migrations made what it says of itself.
    """
    scripts = ScriptDirectory.from_config(configuration(connection))
    steps = [
        Step(one.revision, (one.doc or "").rstrip(".")) for one in scripts.walk_revisions("base", "heads")
    ]
    # From the oldest on.
    steps.reverse()
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
    """Create the schema or bring it to this version's, inside the connection's transaction.

    A newer version's schema is left as it is, and used if that version has written down that it may be.

    Raises:
        StorageError: the database was written by a newer version, whose schema this one may not use.
    """
    schema = schema_of(connection)
    if schema.known and schema.pending:
        command.upgrade(configuration(connection), "head")
    elif not schema.known:
        _use_unknown(schema)


def upgrade_once(connection: Connection) -> bool:
    """Run the next pending migration and return whether there are more; on an empty database run all of them.

    Raises:
        StorageError: the database was written by a newer version, whose schema this one may not use.
    """
    schema = schema_of(connection)
    if schema.current is None or len(schema.pending) < 2:  # noqa: PLR2004 - the last one
        upgrade(connection)
        return False
    command.upgrade(configuration(connection), schema.pending[0].revision)
    return True


def demand(connection: Connection) -> None:
    """See to it that the schema is this version's, or a newer one's that this version may use; change nothing.

    Raises:
        StorageError: it is older, or a newer version's that this one may not use.
    """
    schema = schema_of(connection)
    if schema.pending:
        stands = f"is at {schema.current}" if schema.current else "has not been made"
        raise StorageError(
            f"the database's schema {stands}, and this version needs {schema.newest}; TOOLGATE_MIGRATE=check leaves "
            "that to you: run 'toolgate db upgrade'"
        )
    if not schema.known:
        _use_unknown(schema)


def _use_unknown(schema: Schema) -> None:
    if not schema.usable:
        raise _unknown(
            f"it is at {schema.current!r}, and this version knows none newer than {schema.newest!r}"
        )
    logger.warning(
        "the database's schema is a newer version's (%s), which gateways that know %s may use; this one knows %s",
        schema.current,
        schema.floor,
        schema.newest,
    )


def _unknown(why: str) -> StorageError:
    return StorageError(
        f"the database's schema is not one this version knows ({why}); it was probably written by a newer "
        "toolgate: upgrade this installation"
    )
