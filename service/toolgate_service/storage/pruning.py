"""Conditions that say nothing new, for the sake of a table in partitions."""

from typing import Any

from sqlalchemy import Boolean, ColumnElement
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class ForPartitions(FunctionElement[bool]):
    """A condition that follows from the others, by which PostgreSQL sees which partitions need not be read.

    It sees that of a bare column alone, and not of several that are compared as one value. On SQLite, which has no
    partitions and would look the condition up in place of the others, it is left out.
    """

    inherit_cache = True
    type = Boolean()

    def __init__(self, condition: ColumnElement[bool]) -> None:
        super().__init__(condition)


@compiles(ForPartitions)
def _left_out(element: ForPartitions, compiler: Any, **kwargs: Any) -> str:  # noqa: ARG001 - SQLAlchemy's signature
    return "1"


@compiles(ForPartitions, "postgresql")
def _said(element: ForPartitions, compiler: Any, **kwargs: Any) -> str:
    said: str = compiler.process(element.clauses, **kwargs)
    return said
