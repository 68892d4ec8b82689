"""Export of a transparency log with all rows that its leaves describe, for verification without the gateway.

The export is a file with one JSON object on each line: a manifest, all leaves of the latest checkpoint, leaves that are
not part of the tree yet, and the rows with their salts. The page "Formats of the transparency log" describes the
format.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import literal, tuple_
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import Approval, ApprovalVote
from toolgate_service.context import AppContext
from toolgate_service.core.clock import wire
from toolgate_service.db.database import now
from toolgate_service.db.models import Id, Timestamp
from toolgate_service.db.sqlite import SqliteDatabase
from toolgate_service.transparency.chunks import MAX_CHUNK
from toolgate_service.transparency.leaves import (
    APPROVAL,
    COLUMNS,
    DECISION,
    EXPORTED_APPROVAL,
    LOG_ENTRY,
    VOTE,
    unpack,
    write_object,
)
from toolgate_service.transparency.models import TransparencyLog
from toolgate_service.transparency.repository import latest_note, pending_chunks, read_leaves
from toolgate_service.transparency.sealer import LOGGED, Sealer, rows_of
from toolgate_service.transparency.service import open_log

FORMAT = "toolgate.log-export/v1"
#: number of rows that an export reads at a time
BATCH = 500
_MAX_PENDING = 10_000


async def export_log(
    context: AppContext, sealer: Sealer, organization_id: str, environment: str
) -> AsyncGenerator[bytes]:
    """Export the log of an environment: yield the parts of the file, all read from one snapshot of the database.

    Raises:
        ApiError: 409, the log has no leaves yet; 429, too many exports are running; 503, the database does not contain
            a published checkpoint.
    """
    with context.exports.acquire(organization_id):
        # Leaves that no checkpoint covers prove nothing, so append all of them to the tree before the snapshot.
        while await sealer.seal(organization_id, environment):
            pass
        async with context.database.exporting() as session:
            if not isinstance(context.database, SqliteDatabase):
                # Import the module here, because it needs the PostgreSQL driver, which is an optional dependency.
                from toolgate_service.db.postgres import prevent_drops

                await prevent_drops(session, "log_entries")
            log = await open_log(session, sealer, organization_id, environment)
            yield _line(_manifest(log, now(session)))
            for start in range(0, log.size, MAX_CHUNK):
                leaves = await read_leaves(
                    session, organization_id, environment, start, min(log.size, start + MAX_CHUNK)
                )
                yield b"".join(leaf + b"\n" for leaf in leaves)
            yield _line({"leaves": log.size})
            for chunk in await pending_chunks(session, organization_id, environment, _MAX_PENDING):
                yield b"".join(_line({"pending": leaf.decode()}) for leaf in unpack(chunk.data))
            rows = 0
            for kind, model in LOGGED.items():
                if kind == VOTE:
                    # Votes are written together with their approval requests.
                    continue
                async for batch in _read_rows(session, model, organization_id, environment):
                    parts = [(kind, batch)]
                    if kind == APPROVAL:
                        parts.append((VOTE, await _read_votes(session, batch)))
                    rows += sum(len(found) for _, found in parts)
                    yield await asyncio.to_thread(_write_rows, parts)
            yield _line({"rows": rows})


def _manifest(log: TransparencyLog, moment: datetime) -> dict[str, object]:
    # On a busy log, the latest checkpoint often has no cosignatures yet, so also add the latest cosigned checkpoint.
    cosigned = {"cosigned": log.cosigned} if log.cosigned else {}
    return {
        "format": FORMAT,
        "origin": log.origin,
        "vkey": log.vkey,
        "organization_id": log.organization_id,
        "environment": log.environment,
        "exported_at": wire(moment),
        "checkpoint": latest_note(log),
        **cosigned,
    }


async def _read_rows(
    session: AsyncSession, model: Any, organization_id: str, environment: str
) -> AsyncIterator[Sequence[Any]]:
    """Yield the rows of an environment in batches, oldest first."""
    key = tuple_(col(model.created_at), col(model.id))
    query = (
        select(model)
        .where(col(model.organization_id) == organization_id, *rows_of(model, environment))
        .order_by(col(model.created_at), col(model.id))
        .limit(BATCH)
    )
    position = query
    while batch := (await session.exec(position)).all():
        yield batch
        session.expunge_all()
        last = tuple_(literal(batch[-1].created_at, Timestamp()), literal(batch[-1].id, Id()))
        position = query.where(key > last)


async def _read_votes(session: AsyncSession, approvals: Sequence[Approval]) -> Sequence[ApprovalVote]:
    first = approvals[0]
    query = select(ApprovalVote).where(
        col(ApprovalVote.approval_id).in_([one.id for one in approvals]),
        ApprovalVote.organization_id == first.organization_id,
        ApprovalVote.environment == first.environment,
    )
    return (await session.exec(query)).all()


def _write_rows(parts: Sequence[tuple[str, Sequence[Any]]]) -> bytes:
    return b"".join(_write_row(kind, row) for kind, rows in parts for row in rows)


def _write_row(kind: str, row: Any) -> bytes:
    columns = EXPORTED_APPROVAL if kind == APPROVAL else COLUMNS[kind]
    line: dict[str, object] = {"kind": kind, "salt": row.salt}
    if kind in {DECISION, LOG_ENTRY}:
        line["context"] = row.context
    if kind == DECISION:
        line["context_digest"] = row.context_digest
    line["row"] = write_object(columns, [getattr(row, name) for name in columns]).decode()
    return _line(line)


def _line(content: dict[str, object]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
