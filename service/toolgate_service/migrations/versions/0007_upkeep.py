"""Add the lease of the maintenance jobs, and indexes for paginated lists and for the deletion of old rows.

Revision: 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_approvals_by_agent": (
        "approvals",
        ["organization_id", "environment", "agent_id", "created_at", "id"],
    ),
    "ix_approvals_by_status": (
        "approvals",
        ["organization_id", "environment", "status", "created_at", "id"],
    ),
    "ix_audit_entries_by_kind": ("audit_entries", ["organization_id", "kind", "created_at", "id"]),
    "ix_audit_entries_by_user": ("audit_entries", ["organization_id", "user_id", "created_at", "id"]),
}


def upgrade() -> None:
    op.create_table(
        "heartbeats",
        sa.Column("job", sa.String(20), nullable=False),
        sa.Column("holder", Id(), nullable=True),
        sa.Column("held_until", Timestamp(), nullable=True),
        sa.Column("beaten_at", Timestamp(), nullable=False),
        sa.Column("steady_since", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_heartbeats"),
    )
    for name, (table, columns) in INDEXES.items():
        op.create_index(name, table, columns)


def downgrade() -> None:
    for name, (table, _) in INDEXES.items():
        op.drop_index(name, table)
    op.drop_table("heartbeats")
