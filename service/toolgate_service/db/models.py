"""Base class of all tables, constraints that separate tenants, and column types for SQLite and PostgreSQL.

Each row of an organization contains the id of the organization, and most rows contain the environment. Foreign keys
include these columns, so that the database rejects a reference to a row of another organization or environment.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    ColumnElement,
    DateTime,
    Dialect,
    ForeignKeyConstraint,
    Index,
    MetaData,
    String,
    Text,
    TypeDecorator,
    Uuid,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import registry
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine
from sqlmodel import SQLModel

from toolgate_service.core.clock import from_wire, wire
from toolgate_service.core.ids import is_id

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

PRODUCTION = "production"
TEST = "test"
ENVIRONMENTS = (PRODUCTION, TEST)


class Table(SQLModel, registry=registry(metadata=MetaData(naming_convention=NAMES))):
    """Base class of all tables of the gateway. Its metadata is separate from that of other SQLModel classes.

    The constructor of a class with `table=True` does not validate its arguments, so pass only validated values.
    """


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """Return a check constraint that allows only the given values in a text column."""
    literals = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({literals})", name=column)


def in_environment() -> ForeignKeyConstraint:
    """Return the foreign key from a row to the environment to which it belongs."""
    return ForeignKeyConstraint(
        ["organization_id", "environment"], ["environments.organization_id", "environments.name"]
    )


def of_agent(column: str = "agent_id") -> ForeignKeyConstraint:
    """Return the foreign key from a row to an agent of the same organization and environment."""
    return ForeignKeyConstraint(
        ["organization_id", "environment", column],
        ["agents.organization_id", "agents.environment", "agents.id"],
    )


def of_user(column: str) -> ForeignKeyConstraint:
    """Return the foreign key from a row to a user of the same organization."""
    return ForeignKeyConstraint(["organization_id", column], ["users.organization_id", "users.id"])


def index_where(name: str, condition: str, *columns: str, unique: bool = False) -> Index:
    """Return a partial index, which contains only the rows for which an SQL condition is true."""
    return Index(
        name, *columns, unique=unique, sqlite_where=text(condition), postgresql_where=text(condition)
    )


class Id(TypeDecorator[str]):
    """Column type for identifiers: ``uuid`` on PostgreSQL, text with dashes on SQLite, ``str`` in Python."""

    impl = String(36)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Return the column type for the dialect of the database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(Uuid(as_uuid=False))
        return dialect.type_descriptor(String(36))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Convert an identifier from Python for the database.

        On PostgreSQL, an invalid identifier becomes NULL, because PostgreSQL would otherwise reject the whole
        statement.
        """
        if value is None or dialect.name != "postgresql" or is_id(value):
            return value
        return None


class Timestamp(TypeDecorator[datetime]):
    """Column type for timestamps.

    It is ``timestamptz`` on PostgreSQL, text in the format of the API on SQLite, and a UTC ``datetime`` in Python. The
    texts sort in the order of time, so SQLite can compare and index them.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column type for the dialect of the database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(String(27))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> object:
        """Convert a timestamp from Python for the database."""
        if value is None or dialect.name == "postgresql":
            return value
        return wire(value)

    def process_result_value(self, value: object, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - parameter required by SQLAlchemy
        """Convert a value from the database to a UTC timestamp."""
        match value:
            case str():
                return from_wire(value)
            case datetime():
                # Add the time zone to the special values `-infinity` and `infinity`, which the PostgreSQL driver
                # returns without one.
                return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return None


class ExactDecimal(TypeDecorator[Decimal]):
    """Column type for decimal numbers, which are stored as text so that no database rounds them."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - parameter required by SQLAlchemy
        """Convert a decimal number to text."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:  # noqa: ARG002 - parameter required by SQLAlchemy
        """Convert text from the database to a decimal number."""
        return None if value is None else Decimal(value)


class PartitionHint(FunctionElement[bool]):
    """Redundant SQL condition with which PostgreSQL can skip partitions. On SQLite, it is rendered as true.

    PostgreSQL skips partitions for a condition on a single column, but not for a comparison of row values. SQLite has
    no partitions, and would choose a slower index because of the condition.
    """

    inherit_cache = True
    type = Boolean()

    def __init__(self, condition: ColumnElement[bool]) -> None:
        super().__init__(condition)


@compiles(PartitionHint)
def _ignored(element: PartitionHint, compiler: Any, **kwargs: Any) -> str:  # noqa: ARG001 - parameter required by SQLAlchemy
    return "1"


@compiles(PartitionHint, "postgresql")
def _rendered(element: PartitionHint, compiler: Any, **kwargs: Any) -> str:
    rendered: str = compiler.process(element.clauses, **kwargs)
    return rendered
