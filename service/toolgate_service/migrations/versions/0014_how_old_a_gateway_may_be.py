"""How old a gateway may be that uses the schema, for versions that do not know it.

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
    # What a gateway knew before this: nothing has been taken away since.
    op.bulk_insert(floor, [{"revision": "0013"}])


def downgrade() -> None:
    op.drop_table("schema_floor")
