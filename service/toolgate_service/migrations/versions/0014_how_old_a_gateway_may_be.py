"""Add a table with the oldest schema revision that a gateway must know to use the schema.

Revision: 0014, after 0013.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    floor = op.create_table(
        "schema_floor",
        sa.Column("revision", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("revision", name="pk_schema_floor"),
    )
    # Gateways that know revision 0013, but not this one, can use the schema, because this migration removes no table
    # and no column.
    op.bulk_insert(floor, [{"revision": "0013"}])


def downgrade() -> None:
    op.drop_table("schema_floor")
