"""Add the transparency log, and the salts of the rows that its leaves describe.

Rows from before this migration have no salt and no leaf. The first leaf of each log contains their number.

Revision: 0025, after 0024.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TENANT = ("organization_id", "environment")
#: tables whose rows have a salt, with the number of hexadecimal digits: 32 for one salt, or 64 for two salts if the
#: rows contain a context
SALTED = {
    "log_entries": 64,
    "decisions": 64,
    "approvals": 64,
    "approval_votes": 32,
    "audit_entries": 32,
    "policy_revisions": 32,
}


def upgrade() -> None:
    op.create_table(
        "transparency_logs",
        sa.Column("id", Id(), nullable=False),
        *tenant(),
        sa.Column("origin", sa.String(500), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("vkey", sa.String(700), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("checkpoint", sa.Text(), nullable=False),
        sa.Column("cosigned", sa.Text(), nullable=False),
        sa.Column("sealed_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_transparency_logs"),
        reference("transparency_logs"),
        sa.UniqueConstraint(*TENANT, name="uq_transparency_logs_organization_id_environment"),
        sa.CheckConstraint("size >= 0", name=op.f("ck_transparency_logs_size")),
    )
    op.create_table(
        "transparency_chunks",
        sa.Column("sequence", SEQUENCE, nullable=False),
        *tenant(),
        sa.Column("first_index", sa.BigInteger(), nullable=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("first_at", Timestamp(), nullable=False),
        sa.Column("last_at", Timestamp(), nullable=False),
        sa.Column("subject", Id(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="pk_transparency_chunks"),
        reference("transparency_chunks"),
    )
    partial_index("ix_transparency_chunks_pending", "first_index IS NULL", "sequence")
    partial_index("ix_transparency_chunks_by_index", "first_index IS NOT NULL", "first_index", unique=True)
    partial_index("ix_transparency_chunks_by_time", "first_index IS NOT NULL", "last_at")
    partial_index("ix_transparency_chunks_by_subject", "subject IS NOT NULL", "subject", "first_index")
    op.create_table(
        "transparency_leaves",
        sa.Column("sequence", SEQUENCE, autoincrement=False, nullable=False),
        *tenant(),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_transparency_leaves"),
        reference("transparency_leaves"),
    )
    op.create_table(
        "transparency_tiles",
        *tenant(),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(*TENANT, "level", "position", name="pk_transparency_tiles"),
        reference("transparency_tiles"),
    )
    for table, digits in SALTED.items():
        op.add_column(table, sa.Column("salt", sa.String(digits), nullable=True))


def tenant() -> list[sa.Column[str]]:
    return [
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
    ]


def reference(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [*TENANT],
        ["environments.organization_id", "environments.name"],
        name=f"fk_{table}_organization_id_environment",
    )


def partial_index(name: str, condition: str, *columns: str, unique: bool = False) -> None:
    op.create_index(
        name,
        "transparency_chunks",
        [*TENANT, *columns],
        unique=unique,
        sqlite_where=sa.text(condition),
        postgresql_where=sa.text(condition),
    )


def downgrade() -> None:
    for table in SALTED:
        op.drop_column(table, "salt")
    for table in ("transparency_tiles", "transparency_leaves", "transparency_chunks", "transparency_logs"):
        op.drop_table(table)
