"""Database queries for the logs, tiles and chunks of the transparency log."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeAlias

import sqlalchemy
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.ids import time_of_id
from toolgate_service.transparency import merkle
from toolgate_service.transparency.chunks import MAX_CHUNK
from toolgate_service.transparency.leaves import unpack
from toolgate_service.transparency.merkle import TileId
from toolgate_service.transparency.models import (
    TransparencyChunk,
    TransparencyLeaves,
    TransparencyLog,
    TransparencyTile,
)

#: id of an organization and name of one of its environments
Tenant: TypeAlias = tuple[str, str]

_LEAVES_OF_CHUNK = col(TransparencyLeaves.sequence) == col(TransparencyChunk.sequence)
#: maximum time between the creation of a row's id and the last leaf of the chunk that contains the row's leaf
_CHUNK_SPAN = timedelta(minutes=2)
#: maximum differences between the time in the id of a row and the time of its leaf: the first applies if both were read
#: from the same clock, the second if one was read from the gateway's clock and the other from the database's
_CLOCK, _CLOCKS = timedelta(seconds=1), timedelta(minutes=1)


class PendingChunk(NamedTuple):
    """Chunk of committed leaves that are not part of the tree yet.

    Attributes:
        number: Number of leaves.
        data: The leaves, each after its length in two bytes.
    """

    sequence: int
    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FoundLeaf:
    """Leaf, and its position in the log; the position is None until the leaf is part of the tree."""

    index: int | None
    data: bytes


def lock_name(organization_id: str, environment: str) -> str:
    """Return the name of the database lock that a transaction holds while it changes a log."""
    return f"transparency log {organization_id}/{environment}"


def note_size(note: str) -> int:
    """Return the number of leaves of a checkpoint; 0 for an empty text."""
    return int(note.split("\n", 2)[1]) if note else 0


async def find_log(session: AsyncSession, organization_id: str, environment: str) -> TransparencyLog | None:
    """Return the log of an environment; None before its first leaf is part of the tree."""
    query = select(TransparencyLog).where(
        TransparencyLog.organization_id == organization_id, TransparencyLog.environment == environment
    )
    return (await session.exec(query)).first()


def latest_note(log: TransparencyLog) -> str:
    """Return the latest checkpoint of a log, with the signatures of witnesses if they cosigned it."""
    return log.cosigned if log.cosigned.startswith(log.checkpoint) else log.checkpoint


async def pending_tenants(session: AsyncSession) -> Sequence[Tenant]:
    """Return the environments with leaves that are not part of the tree yet."""
    tenant = (TransparencyChunk.organization_id, TransparencyChunk.environment)
    query = select(*tenant).where(col(TransparencyChunk.first_index).is_(None)).distinct()
    return [
        (organization_id, environment) for organization_id, environment in (await session.exec(query)).all()
    ]


async def pending_chunks(
    session: AsyncSession, organization_id: str, environment: str, limit: int
) -> Sequence[PendingChunk]:
    """Return the oldest chunks of an environment that are not part of the tree yet."""
    query = (
        select(TransparencyChunk.sequence, TransparencyChunk.number, TransparencyLeaves.data)
        .join(TransparencyLeaves, _LEAVES_OF_CHUNK)
        .where(
            TransparencyChunk.organization_id == organization_id,
            TransparencyChunk.environment == environment,
            col(TransparencyChunk.first_index).is_(None),
        )
        .order_by(col(TransparencyChunk.sequence))
        .limit(limit)
    )
    return [PendingChunk(*row) for row in (await session.exec(query)).all()]


async def place_chunks(session: AsyncSession, positions: Iterable[tuple[int, int]]) -> None:
    """Store the positions of chunks: pairs of a chunk's number and the index of its first leaf in the log."""
    table = TransparencyChunk.__table__  # type: ignore[attr-defined]  # mypy does not know it
    statement = (
        sqlalchemy.update(table)
        .where(table.c.sequence == sqlalchemy.bindparam("chunk"))
        .values(first_index=sqlalchemy.bindparam("index"))
    )
    connection = await session.connection()
    await connection.execute(statement, [{"chunk": chunk, "index": index} for chunk, index in positions])


async def load_tiles(
    session: AsyncSession, organization_id: str, environment: str, tiles: Iterable[TileId]
) -> Mapping[TileId, bytes]:
    """Return the hashes of tiles. Tiles that do not exist are omitted."""
    wanted = frozenset(tiles)
    if not wanted:
        return {}
    # Compare levels and positions separately, because SQLite would read all tiles of the tree for a list of pairs of
    # level and position. The query therefore also returns some tiles that are not wanted.
    query = select(TransparencyTile.level, TransparencyTile.position, TransparencyTile.hashes).where(
        TransparencyTile.organization_id == organization_id,
        TransparencyTile.environment == environment,
        col(TransparencyTile.level).in_({tile.level for tile in wanted}),
        col(TransparencyTile.position).in_({tile.position for tile in wanted}),
    )
    found = {TileId(level, position): hashes for level, position, hashes in (await session.exec(query)).all()}
    return {tile: hashes for tile, hashes in found.items() if tile in wanted}


async def store_tiles(
    session: AsyncSession, organization_id: str, environment: str, tiles: Mapping[TileId, bytes]
) -> None:
    """Insert new tiles, and replace tiles that have grown."""
    connection = await session.connection()
    insert = (sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert)(TransparencyTile)
    statement = insert.on_conflict_do_update(
        index_elements=["organization_id", "environment", "level", "position"],
        set_={"hashes": insert.excluded.hashes},
    )
    await connection.execute(
        statement,
        [
            {
                "organization_id": organization_id,
                "environment": environment,
                "level": tile.level,
                "position": tile.position,
                "hashes": hashes,
            }
            for tile, hashes in tiles.items()
        ],
    )


async def read_hashes(
    session: AsyncSession, organization_id: str, environment: str, ranges: Sequence[tuple[int, int]]
) -> Sequence[bytes]:
    """Return the hashes of subtrees, each given by its range of leaves."""
    tiles = await load_tiles(session, organization_id, environment, merkle.needed_tiles(ranges))
    return [merkle.range_hash(start, end, tiles.__getitem__) for start, end in ranges]


async def read_root(session: AsyncSession, log: TransparencyLog, size: int) -> bytes:
    """Return the root of the first `size` leaves of a log."""
    if size == 0:
        return merkle.EMPTY_ROOT
    [root] = await read_hashes(session, log.organization_id, log.environment, [(0, size)])
    return root


async def read_leaves(
    session: AsyncSession, organization_id: str, environment: str, start: int, end: int
) -> Sequence[bytes]:
    """Return the leaves with the indexes from `start` to `end` (exclusive) that are part of the tree."""
    query = (
        select(TransparencyChunk.first_index, TransparencyLeaves.data)
        .join(TransparencyLeaves, _LEAVES_OF_CHUNK)
        .where(
            TransparencyChunk.organization_id == organization_id,
            TransparencyChunk.environment == environment,
            col(TransparencyChunk.first_index) > start - MAX_CHUNK,
            col(TransparencyChunk.first_index) < end,
        )
        .order_by(col(TransparencyChunk.first_index))
    )
    return [
        leaf
        for first, data in (await session.exec(query)).all()
        for index, leaf in enumerate(unpack(data), first or 0)
        if start <= index < end
    ]


async def find_leaf(
    session: AsyncSession, organization_id: str, environment: str, kind: str, row_id: str
) -> FoundLeaf | None:
    """Return the leaf of a row; None if the log has no leaf with this kind and id.

    The leaf is searched by the time that the id of the row contains, so it is found even if the row was deleted.
    """
    created = time_of_id(row_id)
    if created is None:
        return None
    chunks = (
        select(TransparencyChunk.first_index, TransparencyLeaves.data)
        .join(TransparencyLeaves, _LEAVES_OF_CHUNK)
        .where(
            TransparencyChunk.organization_id == organization_id,
            TransparencyChunk.environment == environment,
        )
    )
    pending, placed = (
        col(TransparencyChunk.first_index).is_(None),
        col(TransparencyChunk.first_index).is_not(None),
    )
    # Search the pending leaves first, because they may become part of the tree during the search.
    queries = [
        chunks.where(
            state,
            col(TransparencyChunk.last_at).between(created - tolerance, created + _CHUNK_SPAN),
            col(TransparencyChunk.first_at) <= created + tolerance,
        )
        for state, tolerance in ((pending, _CLOCKS), (placed, _CLOCK), (placed, _CLOCKS))
    ]
    texts = (f'"id":"{row_id}"'.encode(), f'"kind":"{kind}"'.encode())
    for query in queries:
        found = _search(await session.exec(query), lambda leaf: all(text in leaf for text in texts))
        if found is not None:
            return found
    return None


async def find_latest_leaf(
    session: AsyncSession, organization_id: str, environment: str, approval_id: str
) -> FoundLeaf | None:
    """Return the leaf for the latest state of an approval request.

    Return None if the log has no such leaf, because this state is older than the log or the request does not exist.
    """
    query = (
        select(TransparencyChunk.first_index, TransparencyLeaves.data)
        .join(TransparencyLeaves, _LEAVES_OF_CHUNK)
        .where(
            TransparencyChunk.organization_id == organization_id,
            TransparencyChunk.environment == environment,
            TransparencyChunk.subject == approval_id,
        )
        .order_by(
            col(TransparencyChunk.first_index).desc().nulls_first(), col(TransparencyChunk.sequence).desc()
        )
    )
    return _search(await session.exec(query), lambda leaf: b'"kind":"approval"' in leaf)


def _search(chunks: Iterable[tuple[int | None, bytes]], matches: Callable[[bytes], bool]) -> FoundLeaf | None:
    for first, data in chunks:
        for offset, leaf in reversed(list(enumerate(unpack(data)))):
            if matches(leaf):
                return FoundLeaf(None if first is None else first + offset, leaf)
    return None
