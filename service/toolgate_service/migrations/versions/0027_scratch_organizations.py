"""Add the table that marks scratch organizations.

Revision: 0027, after 0026.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "scratch_organizations",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("closed_at", Timestamp(), nullable=True),
        sa.PrimaryKeyConstraint("organization_id", name="pk_scratch_organizations"),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_scratch_organizations_organization_id"
        ),
    )


def downgrade() -> None:
    op.drop_table("scratch_organizations")
