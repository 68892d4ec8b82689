"""Bringing a database up to date, at every start."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection

from toolgate_service.errors import StorageError

MIGRATIONS = Path(__file__).parent.parent / "migrations"


def configuration(connection: Connection) -> Config:
    """Return Alembic's configuration for one open connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Create the schema or bring it to this version's, inside the connection's transaction.

    Raises:
        StorageError: the database was written by a newer version.
    """
    try:
        command.upgrade(configuration(connection), "head")
    except CommandError as error:
        raise StorageError(
            f"the database's schema is not one this version knows ({error}); it was probably written by a newer "
            "toolgate: upgrade this installation"
        ) from error
