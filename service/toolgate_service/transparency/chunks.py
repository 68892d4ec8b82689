"""Insertion of leaves in the transaction of the rows that they describe.

A transaction stores its leaves in chunks: each chunk contains up to `MAX_CHUNK` leaves of one environment. The sealer
later appends the chunks of all committed transactions to the tree. A leaf therefore exists if and only if its row was
committed.

Rows that are written with the ORM get their leaves by event listeners, so that no code path can omit them. Log entries
and decisions are written with plain SQL, and their stores insert the chunks themselves.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection, insert
from sqlalchemy.event import listen, listens_for
from sqlalchemy.orm import Mapper, Session, UOWTransaction, object_session
from sqlmodel import col
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.clock import wire
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database, now
from toolgate_service.db.models import Table
from toolgate_service.db.retry import with_retry
from toolgate_service.transparency.leaves import RETENTION, Leaf, build_leaf, pack
from toolgate_service.transparency.models import TransparencyChunk, TransparencyLeaves

#: maximum number of leaves in one chunk
MAX_CHUNK = 1_000

_PENDING = "toolgate.leaves"


class Chunk(NamedTuple):
    """Up to `MAX_CHUNK` leaves that one transaction adds to the transparency log of one environment.

    Attributes:
        number: Number of leaves.
        first_at: Time of the earliest leaf.
        last_at: Time of the latest leaf.
        subject: Id of the approval request to which all leaves belong; None if they belong to none.
        data: The leaves, each after its length in two bytes.
    """

    organization_id: str
    environment: str
    number: int
    first_at: datetime
    last_at: datetime
    subject: str | None
    data: bytes


#: function that builds the leaf of an inserted or changed row; it returns the leaf, and the id of the approval request
#: to which the leaf belongs, if any; it returns None if the change has no leaf
LeafBuilder: TypeAlias = Callable[[Any], tuple[Leaf, str | None] | None]


def build_chunks(leaves: Iterable[Leaf], subject: str | None = None) -> list[Chunk]:
    """Pack leaves into chunks of at most `MAX_CHUNK` leaves of one environment, in the given order.

    `subject` is the id of the approval request to which all leaves belong; None if they belong to none.
    """
    by_tenant: dict[tuple[str, str], list[Leaf]] = {}
    for leaf in leaves:
        by_tenant.setdefault((leaf.organization_id, leaf.environment), []).append(leaf)
    return [
        Chunk(
            *tenant,
            len(group),
            min(times := [leaf.at for leaf in group]),
            max(times),
            subject,
            pack(leaf.data for leaf in group),
        )
        for tenant, of_tenant in by_tenant.items()
        for group in (of_tenant[start : start + MAX_CHUNK] for start in range(0, len(of_tenant), MAX_CHUNK))
    ]


async def add_leaf(session: AsyncSession, leaf: Leaf) -> int:
    """Insert a chunk with one leaf in the write transaction of a session, and return the chunk's number."""
    [sequence] = await (await session.connection()).run_sync(_insert, build_chunks([leaf]))
    return sequence


async def announce_retention(
    database: Database, of: str, organization_id: str, environment: str, before: datetime
) -> None:
    """Add a leaf that announces the deletion of rows whose retention period has ended.

    Call this function before the deletion, so that the log explains each missing row even after a crash.

    Args:
        database: Database of the gateway.
        of: Kind of the rows' leaves, or `CONTEXT` if only the contexts of decisions are deleted.
        organization_id: Id of the organization.
        environment: Environment of the rows.
        before: Rows that were created before this time are deleted.
    """

    async def announce() -> None:
        async with database.writing() as session:
            leaf = build_leaf(
                RETENTION, organization_id, environment, now(session), id=new_id(), of=of, before=wire(before)
            )
            await add_leaf(session, leaf)

    await with_retry(announce)


def log_changes(model: type[Table], salt: Callable[[], str], leaf: LeafBuilder) -> None:
    """Register listeners that set the salt of new rows of a model, and add leaves of inserted and changed rows to the log.

    Args:
        model: Model with a column `salt`.
        salt: Function that returns the salt of a new row.
        leaf: Function that builds the leaf of an inserted or changed row; None if the change has no leaf.
    """

    def set_salt(_mapper: Mapper[Any], _connection: Connection, row: Any) -> None:
        row.salt = salt()

    def collect(_mapper: Mapper[Any], _connection: Connection, row: Any) -> None:
        session, built = object_session(row), leaf(row)
        if session is not None and built is not None:
            session.info.setdefault(_PENDING, []).append(built)

    listen(model, "before_insert", set_salt)
    listen(model, "after_insert", collect)
    listen(model, "after_update", collect)


# Insert the chunks only after the flush. They have a foreign key to the row of the environment, and the flush of a new
# organization may insert this row after the rows that the leaves describe.
@listens_for(Session, "after_flush")
def _insert_collected(session: Session, _context: UOWTransaction) -> None:
    by_subject = defaultdict[str | None, list[Leaf]](list)
    for leaf, subject in session.info.pop(_PENDING, ()):
        by_subject[subject].append(leaf)
    chunks = [chunk for subject, leaves in by_subject.items() for chunk in build_chunks(leaves, subject)]
    if chunks:
        _insert(session.connection(), chunks)


def _insert(connection: Connection, chunks: Iterable[Chunk]) -> list[int]:
    """Insert chunks, and return the numbers that the database assigned to them."""
    return [_insert_chunk(connection, chunk) for chunk in chunks]


def _insert_chunk(connection: Connection, chunk: Chunk) -> int:
    values = chunk._asdict()
    leaves = {name: values[name] for name in ("organization_id", "environment")} | {
        "data": values.pop("data")
    }
    inserted = connection.execute(
        insert(TransparencyChunk).values(values).returning(col(TransparencyChunk.sequence))
    )
    sequence = inserted.scalar_one() or 0
    connection.execute(insert(TransparencyLeaves).values(sequence=sequence, **leaves))
    return sequence
