"""The types and forms that spec §2 gives to fields."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from support.shapes import MOMENT, UUID7

#: says whether a value is of a type and in its form
Kind: TypeAlias = Callable[[object], bool]


def text(value: object) -> bool:
    """A string that says something."""
    return isinstance(value, str) and value != ""


def identifier(value: object) -> bool:
    """A string, UUID-shaped."""
    return isinstance(value, str) and UUID7.fullmatch(value) is not None


def moment(value: object) -> bool:
    """An ISO 8601 moment in UTC."""
    return isinstance(value, str) and MOMENT.fullmatch(value) is not None


def boolean(value: object) -> bool:
    """`true` or `false`."""
    return isinstance(value, bool)


def integer(value: object) -> bool:
    """A number without a fraction, written without one."""
    return type(value) is int


def number(value: object) -> bool:
    """Any number."""
    return type(value) in {int, float}


def texts(value: object) -> bool:
    """An array of strings."""
    return isinstance(value, list) and all(map(text, value))


def since(began: datetime, value: str) -> bool:
    """Say whether a moment lies between another and now; the database's clock may differ a little."""
    slack = timedelta(seconds=5)
    return began - slack <= datetime.fromisoformat(value) <= datetime.now(UTC) + slack
