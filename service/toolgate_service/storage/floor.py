"""How old a gateway may be that uses the schema: what a newer version writes down for those before it.

Gateways of two versions serve one database while an update rolls through them. The newer one has migrated, and the
older may be restarted meanwhile: it finds a schema that it does not know, and must be told whether it may use it.
"""

from sqlalchemy import Connection, inspect, text
from sqlmodel import Field

from toolgate_service.storage.base import Table

#: what a migration that takes something away names: the revision that put the other thing in its place
CONTRACTS = "CONTRACTS"

_READ = text("SELECT revision FROM schema_floor")
_RAISE = text("UPDATE schema_floor SET revision = :revision")


class SchemaFloor(Table, table=True):
    """One row: whatever gateway knows this revision may use the schema, whichever the schema's own is."""

    __tablename__ = "schema_floor"

    revision: str = Field(primary_key=True, max_length=32)


def floor_of(connection: Connection) -> str | None:
    """Return the oldest revision that a gateway must know; None where nobody has written it down."""
    if not inspect(connection).has_table(SchemaFloor.__tablename__):
        return None
    found: str | None = connection.execute(_READ).scalar()
    return found


def raise_floor(connection: Connection, revision: str) -> None:
    """Say that gateways must know a revision."""
    connection.execute(_RAISE, {"revision": revision})
