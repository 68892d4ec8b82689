"""Column types that mean the same on SQLite and PostgreSQL."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import DateTime, Dialect, String, Text, TypeDecorator, Uuid
from sqlalchemy.types import TypeEngine

from toolgate_service.clock import from_wire, wire
from toolgate_service.ids import is_id


class Id(TypeDecorator[str]):
    """An identifier: ``uuid`` on PostgreSQL, the dashed text elsewhere, a ``str`` in Python."""

    impl = String(36)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Choose the column's type for a database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(Uuid(as_uuid=False))
        return dialect.type_descriptor(String(36))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Write an identifier; what cannot be one equals none, where PostgreSQL would refuse the statement."""
        if value is None or dialect.name != "postgresql" or is_id(value):
            return value
        return None


class Timestamp(TypeDecorator[datetime]):
    """A moment: ``timestamptz`` on PostgreSQL, the API's own text elsewhere, an aware UTC ``datetime`` in Python.

    The text sorts as the moments do, reads well in any SQLite tool, and needs no conversion on the way out.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column's type for a database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(String(27))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> object:
        """Write a moment for the database."""
        if value is None or dialect.name == "postgresql":
            return value
        return wire(value)

    def process_result_value(self, value: object, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Read a moment from the database."""
        match value:
            case str():
                return from_wire(value)
            case datetime():
                # The first and the last moment come back from PostgreSQL without a zone.
                return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return None


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal number kept digit by digit, as text: no database rounds it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Write a number for the database."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Read a number from the database."""
        return None if value is None else Decimal(value)
