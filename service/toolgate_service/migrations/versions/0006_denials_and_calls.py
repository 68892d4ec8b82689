"""Add indexes with which a check finds recent rejections and consumed approvals of an agent.

Revision: 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_approvals_denied": ("denied", "decided_at"),
    "ix_approvals_consumed": ("consumed", "call_id"),
    "ix_approvals_consumed_by": ("consumed", "consumed_call_id"),
}


def upgrade() -> None:
    for name, (status, last) in INDEXES.items():
        where = sa.text(f"status = '{status}'")
        op.create_index(
            name,
            "approvals",
            ["organization_id", "environment", "agent_id", "action", last],
            sqlite_where=where,
            postgresql_where=where,
        )


def downgrade() -> None:
    for name in INDEXES:
        op.drop_index(name, "approvals")
