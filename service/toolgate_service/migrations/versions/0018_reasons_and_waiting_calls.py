"""Add the agent's reason to approval requests, and the time until which a call waits for the decision.

Revision: 0018, after 0017.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Timestamp

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


COLUMNS = (
    ("reason", sa.String(1000)),
    ("last_asked_at", Timestamp()),
    ("waiting_until", Timestamp()),
)


def upgrade() -> None:
    for name, kind in COLUMNS:
        op.add_column("approvals", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for name, _ in reversed(COLUMNS):
        op.drop_column("approvals", name)
