"""Reason that an agent gave for an approval request.

Revision: 0018, after 0017.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("approvals", sa.Column("reason", sa.String(1000), nullable=True))


def downgrade() -> None:
    op.drop_column("approvals", "reason")
