"""Add the client address of sessions, and an index with which old login failures are found.

Revision: 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("address", sa.String(80), nullable=True))
    op.create_index("ix_login_failures_last_failed_at", "login_failures", ["last_failed_at"])


def downgrade() -> None:
    op.drop_index("ix_login_failures_last_failed_at", "login_failures")
    with op.batch_alter_table("sessions") as sessions:
        sessions.drop_column("address")
