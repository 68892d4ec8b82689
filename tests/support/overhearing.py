"""What a gateway says to its database: every statement once, with the line of the gateway's that says it.

A gateway of the tests whose environment has `OVERHEARD_IN` writes it down in that file, a line of JSON each.
"""

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import asyncpg
import greenlet
from sqlalchemy import Engine, event

import toolgate_service

#: the variable that names the file
OVERHEARD_IN = "OVERHEARD_IN"
#: the gateway's folder, as the names of its files begin
SERVICE = toolgate_service.__file__.removesuffix("__init__.py")
#: what of asyncpg's connections the gateway uses directly
RAW = ("fetch", "fetchrow", "fetchval", "execute", "executemany")


@dataclass(frozen=True, slots=True)
class Heard:
    """A statement.

    Attributes:
        module: the file that says it, below the gateway's folder.
        line: of the file.
        statement: what it says, in its database's words.
    """

    module: str
    line: int
    statement: str


def begin(path: str) -> None:
    """Write down, from now on, whatever this process says to a database."""
    known: set[Heard] = set()
    file = Path(path).open("a", buffering=1)  # noqa: SIM115 - for as long as the process lives

    def hear(statement: str) -> None:
        at = next((frame for frame in _frames() if frame.f_code.co_filename.startswith(SERVICE)), None)
        if at is None:
            return
        heard = Heard(at.f_code.co_filename.removeprefix(SERVICE), at.f_lineno, statement)
        if heard not in known:
            known.add(heard)
            file.write(json.dumps(asdict(heard)) + "\n")

    event.listen(Engine, "before_cursor_execute", lambda _c, _k, statement, *_: hear(statement))
    _overhear_sqlite(hear)
    _overhear_asyncpg(hear)


def read(path: Path) -> set[Heard]:
    """Return what was written down."""
    return {Heard(**json.loads(line)) for line in path.read_text().splitlines()}


def _overhear_sqlite(hear: Callable[[str], None]) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            hear(statement)
            return super().execute(statement, *values)

        def executemany(self, statement: str, *values: Any) -> sqlite3.Cursor:
            hear(statement)
            return super().executemany(statement, *values)

    connect = sqlite3.connect

    def overheard(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **{"factory": Connection} | options)

    vars(sqlite3)["connect"] = overheard


def _overhear_asyncpg(hear: Callable[[str], None]) -> None:
    def overheard(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, statement: str, *values: Any, **options: Any) -> Any:
            hear(statement)
            return method(self, statement, *values, **options)

        return call

    for name in RAW:
        setattr(asyncpg.Connection, name, overheard(getattr(asyncpg.Connection, name)))


def _frames() -> Iterator[FrameType]:
    """Yield who called whom, the innermost first; behind SQLAlchemy's greenlets, those who wait for them."""
    frame: FrameType | None = sys._getframe(1)
    within: Any = greenlet.getcurrent()
    while True:
        while frame is not None:
            yield frame
            frame = frame.f_back
        within = within.parent
        if within is None:
            return
        frame = within.gr_frame
