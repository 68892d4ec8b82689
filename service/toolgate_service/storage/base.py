"""The base of every table, and the pieces that carry tenancy in the schema (decisions §9).

Every row of a tenant names its organization, and most its environment; foreign keys are composite, so that the
database itself refuses a row that points into another organization or environment.
"""

from collections.abc import Iterable

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, MetaData, text
from sqlalchemy.orm import registry
from sqlmodel import SQLModel

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
    """The base of all tables, with metadata of its own: the gateway may live in a process with other SQLModels.

    `table=True` classes do not validate in their constructor: build them from validated values only.
    """


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """Return a constraint that a text column holds one of a few words."""
    words = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({words})", name=column)


def in_environment() -> ForeignKeyConstraint:
    """Return the foreign key to the row's environment."""
    return ForeignKeyConstraint(
        ["organization_id", "environment"], ["environments.organization_id", "environments.name"]
    )


def of_agent(column: str = "agent_id") -> ForeignKeyConstraint:
    """Return the foreign key to an agent of the same organization and environment."""
    return ForeignKeyConstraint(
        ["organization_id", "environment", column],
        ["agents.organization_id", "agents.environment", "agents.id"],
    )


def of_user(column: str) -> ForeignKeyConstraint:
    """Return the foreign key to a user of the same organization."""
    return ForeignKeyConstraint(["organization_id", column], ["users.organization_id", "users.id"])


def index_where(name: str, condition: str, *columns: str) -> Index:
    """Return an index of those rows alone that meet a condition."""
    return Index(name, *columns, sqlite_where=text(condition), postgresql_where=text(condition))
