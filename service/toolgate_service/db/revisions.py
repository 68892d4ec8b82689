"""The revision of a schema: which it is, what an upgrade would do, and the upgrade."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, event

from toolgate_service.db.desk import done, existing_file, looked_at, settings_for, worked_on
from toolgate_service.db.report import Report, shown
from toolgate_service.storage.database import is_embedded
from toolgate_service.storage.migrate import Schema, schema_of
from toolgate_service.storage.migrate import upgrade as bring_up
from toolgate_service.storage.sqlite import sqlite_path

#: what only looks
_LOOKS = ("SELECT", "PRAGMA", "SHOW")


class _TakenBack(Exception):
    """Rolls back what was only to be looked at."""


def current(url: str | None = None) -> Report:
    """Tell the schema's revision, this version's, and what an upgrade would do.

    Args:
        url: the database, if not that of the settings.

    Raises:
        StartError: the database cannot be used.
    """
    chosen = settings_for(url).database_url
    schema = done(_schema(chosen))
    return Report(_lines(chosen, schema), _facts(chosen, schema))


def upgrade(url: str | None = None, *, dry_run: bool = False, sql: bool = False) -> Report:
    """Bring the schema to this version's, while gateways serve it.

    Args:
        url: the database, if not that of the settings.
        dry_run: only tell which migrations would run.
        sql: carry them out, tell their statements, and take everything back.

    Raises:
        StartError: the database cannot be used, or is a newer version's; nothing was changed.
    """
    chosen = settings_for(url).database_url
    if sql:
        return done(_statements(chosen))
    if dry_run:
        schema = done(_schema(chosen))
        would = [f"would run {step.revision}: {step.summary}" for step in schema.pending]
        return Report(would or [_up_to_date(schema)], _facts(chosen, schema))
    return done(_upgrade(chosen))


async def _schema(url: str) -> Schema:
    async with looked_at(url) as connection:
        return await connection.run_sync(schema_of)


async def _upgrade(url: str) -> Report:
    before: Schema | None = None
    if not is_embedded(url) or sqlite_path(url).is_file():
        before = await _schema(url)
    async with worked_on(url) as database:
        await database.start()
    after = await _schema(url)
    was = before.current if before else None
    # A gateway that starts meanwhile may have run them: told is what was to be done, and how it stands now.
    steps = before.pending if before else after.steps
    lines = [f"ran {step.revision}: {step.summary}" for step in steps]
    facts = {"database": shown(url), "before": was, "current": after.current, "newest": after.newest}
    ran = [{"revision": step.revision, "summary": step.summary} for step in steps]
    return Report([*lines, _up_to_date(after)], facts | {"ran": ran})


async def _statements(url: str) -> Report:
    if is_embedded(url):
        existing_file(url)
    heard: list[str] = []

    def run(connection: Connection) -> Schema:
        schema = schema_of(connection)
        with _overheard(connection, heard):
            bring_up(connection)
        return schema

    schema = await _schema(url)
    async with worked_on(url) as database:
        with suppress(_TakenBack):
            async with database.opened() as connection:
                schema = await connection.run_sync(run)
                raise _TakenBack
    lines = [f"{statement};" for statement in heard]
    return Report(lines or [_up_to_date(schema)], _facts(url, schema) | {"statements": heard})


@contextmanager
def _overheard(connection: Connection, heard: list[str]) -> Iterator[None]:
    def hear(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        text = statement.strip()
        if not text.upper().startswith(_LOOKS):
            heard.append(f"{text} -- with {parameters!r}" if parameters else text)

    event.listen(connection, "before_cursor_execute", hear)
    try:
        yield
    finally:
        event.remove(connection, "before_cursor_execute", hear)


def _lines(url: str, schema: Schema) -> list[str]:
    lines = [
        f"database       {shown(url)}",
        f"its schema     {schema.current or 'none yet'}",
        f"this version's {schema.newest}",
    ]
    if not schema.known:
        may = "may use it all the same" if schema.usable else "may not use it"
        lines.append(f"a newer version wrote it; this one {may}")
    lines += [f"pending        {step.revision}: {step.summary}" for step in schema.pending]
    if not schema.pending and schema.known:
        lines.append("pending        nothing")
    return lines


def _facts(url: str, schema: Schema) -> dict[str, Any]:
    return {
        "database": shown(url),
        "current": schema.current,
        "newest": schema.newest,
        "pending": [{"revision": step.revision, "summary": step.summary} for step in schema.pending],
        "known": schema.known,
        "usable": schema.known or schema.usable,
    }


def _up_to_date(schema: Schema) -> str:
    if schema.known:
        return f"the schema is at {schema.current}, which is this version's"
    return f"the schema is at {schema.current}, a newer version's that this one may use"
