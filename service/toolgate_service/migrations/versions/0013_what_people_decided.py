"""Add an index of the approval requests that users decided, by the time of the decision.

Revision: 0013, after 0012.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NAME = "ix_approvals_decided"
CONDITION = sa.text("decided_by IS NOT NULL")


def upgrade() -> None:
    op.create_index(
        NAME,
        "approvals",
        ["organization_id", "environment", "decided_at", "created_at"],
        sqlite_where=CONDITION,
        postgresql_where=CONDITION,
    )


def downgrade() -> None:
    op.drop_index(NAME, "approvals")
