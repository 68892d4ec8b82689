"""Add indexes with which budget reservations are listed by time, and users of an organization by e-mail address.

Revision: 0029, after 0028.
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

RESERVATIONS, USERS = "ix_budget_reservations_by_time", "ix_users_by_email"


def upgrade() -> None:
    op.create_index(
        RESERVATIONS, "budget_reservations", ["organization_id", "environment", "created_at", "id"]
    )
    op.create_index(USERS, "users", ["organization_id", "email"])


def downgrade() -> None:
    op.drop_index(USERS, "users")
    op.drop_index(RESERVATIONS, "budget_reservations")
