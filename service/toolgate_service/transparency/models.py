"""Database tables of the transparency log."""

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
)
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, in_environment, index_where

_TENANT = ("organization_id", "environment")
#: type of an integer key that both PostgreSQL and SQLite can assign
SEQUENCE = BigInteger().with_variant(Integer, "sqlite")


class TransparencyLog(Table, table=True):
    """Transparency log of an environment: its key, and the latest signed checkpoint.

    The size, the root and the checkpoint are changed only in the transaction that appends leaves to the tree, so they
    always belong to the stored tiles.
    """

    __tablename__ = "transparency_logs"
    __table_args__ = (
        in_environment(),
        UniqueConstraint("organization_id", "environment"),
        CheckConstraint("size >= 0", name="size"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: name of the log in its checkpoints; it never changes
    origin: str = Field(max_length=500)
    #: encrypted Ed25519 key; empty if the key is in a file
    ciphertext: bytes
    vkey: str = Field(max_length=700)
    #: number of leaves in the tree, and root of the tree
    size: int = Field(sa_type=BigInteger)
    root: bytes
    #: signed note of the latest checkpoint
    checkpoint: str = Field(sa_type=Text)
    #: signed note of the latest checkpoint that witnesses cosigned, with their signatures; empty if there is none
    cosigned: str = Field(default="", sa_type=Text)
    #: time of the latest checkpoint
    sealed_at: datetime = Field(sa_type=Timestamp)


class TransparencyChunk(Table, table=True):
    """Chunk of leaves that one transaction added to a log. The table `transparency_leaves` contains the leaves.

    A chunk is inserted in the transaction of the rows that its leaves describe. It has no position in the log until the
    sealer appends it to the tree.
    """

    __tablename__ = "transparency_chunks"
    __table_args__ = (
        in_environment(),
        # Use partial indexes to keep inserts fast, because each log entry waits for the insertion of its chunk. The
        # insertion of a chunk without a subject changes only the first of these indexes.
        index_where("ix_transparency_chunks_pending", "first_index IS NULL", *_TENANT, "sequence"),
        index_where(
            "ix_transparency_chunks_by_index", "first_index IS NOT NULL", *_TENANT, "first_index", unique=True
        ),
        # Index for finding the leaf of a row: the id of the row contains the approximate time of the leaf.
        index_where("ix_transparency_chunks_by_time", "first_index IS NOT NULL", *_TENANT, "last_at"),
        index_where(
            "ix_transparency_chunks_by_subject", "subject IS NOT NULL", *_TENANT, "subject", "first_index"
        ),
    )

    #: number that the database assigns: a later state of an approval request has a higher number than an earlier one,
    #: even if the clocks of the gateways differ
    sequence: int | None = Field(default=None, primary_key=True, sa_type=SEQUENCE)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: index of the first leaf in the log; null until the chunk is part of the tree
    first_index: int | None = Field(default=None, sa_type=BigInteger)
    #: number of leaves
    number: int
    #: times of the earliest and of the latest leaf
    first_at: datetime = Field(sa_type=Timestamp)
    last_at: datetime = Field(sa_type=Timestamp)
    #: id of the approval request to which all leaves of the chunk belong; null if they belong to none
    subject: str | None = Field(default=None, sa_type=Id)


class TransparencyLeaves(Table, table=True):
    """Leaves of a chunk.

    The table is separate, so that the sealer does not rewrite the leaves when it stores the position of the chunk.
    """

    __tablename__ = "transparency_leaves"
    __table_args__ = (in_environment(),)

    #: `sequence` of the chunk
    sequence: int = Field(primary_key=True, sa_type=SEQUENCE, sa_column_kwargs={"autoincrement": False})
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: leaves in the form of an entry bundle: each leaf after its length in two bytes
    data: bytes = Field(sa_type=LargeBinary)


class TransparencyTile(Table, table=True):
    """Tile of the tree with 1 to 256 hashes.

    Only the last tile of a level can have fewer than 256 hashes. It grows when leaves are appended.
    """

    __tablename__ = "transparency_tiles"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "level", "position"),
        in_environment(),
    )

    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    level: int
    position: int = Field(sa_type=BigInteger)
    hashes: bytes = Field(sa_type=LargeBinary)
