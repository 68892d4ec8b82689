"""What holds for a while: in this task or thread, and in those that are begun in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["during"]

T = TypeVar("T")


@contextmanager
def during(variable: ContextVar[T], value: T) -> Iterator[None]:
    """While a context variable has a value; afterwards it has the one that it had."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
