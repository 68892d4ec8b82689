"""What a command tells: to a person in lines, to a program as one object."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from toolgate_service.storage.database import is_embedded, one_host, parse_url
from toolgate_service.storage.sqlite import sqlite_path


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a command.

    Attributes:
        lines: for a person.
        facts: the same for a program; JSON can hold it.
        good: whether all is as it should be.
    """

    lines: Sequence[str]
    facts: Mapping[str, Any]
    good: bool = True


def shown(url: str) -> str:
    """Return how a database is named to people: without user, password, and whatever else may be secret."""
    if is_embedded(url):
        return file_url(sqlite_path(url))
    parsed = parse_url(one_host(url))
    host = parsed.host or _first(parsed.query.get("host")) or "localhost"
    port = parsed.port or _first(parsed.query.get("port")) or 5432
    return f"postgresql://{host}:{port}/{parsed.database or ''}"


def file_url(path: Path) -> str:
    """Return the database URL of a file."""
    return f"sqlite:///{quote(str(path))}"


def _first(value: str | tuple[str, ...] | None) -> str | None:
    return value[0] if isinstance(value, tuple) else value
