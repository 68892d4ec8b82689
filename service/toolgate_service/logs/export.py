"""The log as a file: JSON lines or CSV, from one snapshot, in constant memory (decisions §3)."""

import csv
import io
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Literal, TypeAlias

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.clock import utcnow, wire
from toolgate_service.gateway import Gateway
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.service import Filters, agent_names, in_order
from toolgate_service.logs.spreadsheets import json_cell, text_cell
from toolgate_service.web.paging import Position

Form: TypeAlias = Literal["jsonl", "csv"]

MEDIA_TYPES: Mapping[Form, str] = MappingProxyType({"jsonl": "application/jsonl", "csv": "text/csv"})

#: entries held in memory; one may have 64 KiB
BATCH = 100

COLUMNS = (
    "id", "organization_id", "agent_id", "agent_name", "action", "status", "ip_address", "created_at", "occurred_at",
    "decision_id", "approval_id", "call_id", "run_id", "context",
)  # fmt: skip


def as_file(environment: str, form: Form) -> dict[str, str]:
    """Return the header by which browsers keep it as a file, and under which name."""
    name = f"toolgate-logs-{environment}-{utcnow():%Y-%m-%d}.{form}"
    return {"Content-Disposition": f'attachment; filename="{name}"'}


async def export(
    gateway: Gateway, organization_id: str, environment: str, filters: Filters, form: Form
) -> AsyncGenerator[bytes]:
    """Yield the parts of a file with all entries that match, newest first.

    Raises:
        ApiError: 429, too many exports run.
    """
    header, write = _WRITERS[form]
    with gateway.exports.inside(organization_id):
        if filters.match_nothing:
            yield header
            return
        async with gateway.database.exporting() as session:
            names: dict[str, str] = {}
            after: Position | None = None
            while entries := await _batch(session, organization_id, environment, filters, after):
                unknown = {entry.agent_id for entry in entries} - names.keys()
                names |= await agent_names(session, unknown) if unknown else {}
                yield header + write((entry, names[entry.agent_id]) for entry in entries)
                header, after = b"", Position(entries[-1].created_at, entries[-1].id)
            if header:
                yield header


async def _batch(
    session: AsyncSession, organization_id: str, environment: str, filters: Filters, after: Position | None
) -> list[LogEntry]:
    query = in_order(organization_id, environment, filters, after)
    return list((await session.exec(query.limit(BATCH))).all())


def _jsonl(entries: Iterable[tuple[LogEntry, str]]) -> bytes:
    return "".join(map(_line, entries)).encode()


def _line(named: tuple[LogEntry, str]) -> str:
    entry, agent_name = named
    fields = {name: getattr(entry, name) for name in COLUMNS if name not in {"agent_name", "context"}}
    written = exact_json.dumps(fields | {"agent_name": agent_name})
    # The context is JSON already, every number as it was sent.
    return f'{written[:-1]},"context":{entry.context or "null"}}}\n'


def _csv(entries: Iterable[tuple[LogEntry, str]]) -> bytes:
    return _rows(
        [_cell(name, agent_name if name == "agent_name" else getattr(entry, name)) for name in COLUMNS]
        for entry, agent_name in entries
    )


def _cell(name: str, value: str | datetime | None) -> str:
    if isinstance(value, datetime):
        return wire(value)
    return json_cell(value or "") if name == "context" else text_cell(value or "")


def _rows(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


#: what stands first, and how entries are written
_WRITERS: Mapping[Form, tuple[bytes, Callable[[Iterable[tuple[LogEntry, str]]], bytes]]] = MappingProxyType(
    {"jsonl": (b"", _jsonl), "csv": (_rows([COLUMNS]), _csv)}
)
