"""Count requests for rate limits by scope, so that the requests of users can be counted too.

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Replace the table without copying its rows, because they contain only the counts of the last minute.
    op.drop_table("rate_windows")
    op.create_table(
        "rate_windows",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("scope", sa.String(64), nullable=False),
        sa.Column("minute", sa.Integer(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_rate_windows_organization_id"
        ),
        sa.PrimaryKeyConstraint("organization_id", "scope", name="pk_rate_windows"),
    )


def downgrade() -> None:
    op.drop_table("rate_windows")
    op.create_table(
        "rate_windows",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("surface", sa.String(10), nullable=False),
        sa.Column("minute", sa.Integer(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name="fk_rate_windows_organization_id_environment",
        ),
        sa.PrimaryKeyConstraint("organization_id", "environment", "surface", name="pk_rate_windows"),
    )
