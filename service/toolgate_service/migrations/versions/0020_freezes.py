"""Add freezes. A trigger raises the epochs of the organization's environments when a freeze changes.

Revision: 0020, after 0019.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TABLE = "freezes"
USERS = ("created_by", "lifted_by")
INDEXES = {"ix_freezes_active": "lifted_at IS NULL", "ix_freezes_lifted": "lifted_at IS NOT NULL"}
OPERATIONS = ("insert", "update", "delete")

RAISE_EPOCHS = """
        INSERT INTO epochs {alias}(organization_id, environment, epoch)
        SELECT organization_id, name, 1 FROM environments WHERE organization_id = {row}{ordered}
        ON CONFLICT (organization_id, environment) DO UPDATE SET epoch = {epochs}.epoch + 1;
"""


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("agent_id", Id(), nullable=True),
        sa.Column("action", sa.String(255), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("lifted_by", Id(), nullable=True),
        sa.Column("lifted_at", Timestamp(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=f"pk_{TABLE}"),
        *(
            sa.ForeignKeyConstraint(
                ["organization_id", user],
                ["users.organization_id", "users.id"],
                name=f"fk_{TABLE}_organization_id_{user}",
            )
            for user in USERS
        ),
    )
    for name, condition in INDEXES.items():
        where = sa.text(condition)
        op.create_index(
            name,
            TABLE,
            ["organization_id", "created_at", "id"],
            sqlite_where=where,
            postgresql_where=where,
        )
    if op.get_bind().dialect.name == "postgresql":
        row = "coalesce(NEW.organization_id, OLD.organization_id)"
        raised = RAISE_EPOCHS.format(alias="AS e ", row=row, ordered=" ORDER BY name", epochs="e")
        op.execute(
            f"CREATE FUNCTION raise_epochs_of_freeze() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {raised} "
            "RETURN NULL; END $$"
        )
        op.execute(
            f"CREATE TRIGGER {TABLE}_epoch AFTER INSERT OR UPDATE OR DELETE ON {TABLE} "
            "FOR EACH ROW EXECUTE FUNCTION raise_epochs_of_freeze()"
        )
        return
    for operation in OPERATIONS:
        row = f"{'OLD' if operation == 'delete' else 'NEW'}.organization_id"
        raised = RAISE_EPOCHS.format(alias="", row=row, ordered="", epochs="epochs")
        op.execute(
            f"CREATE TRIGGER {TABLE}_epoch_{operation} AFTER {operation} ON {TABLE} BEGIN {raised} END"
        )


def downgrade() -> None:
    op.drop_table(TABLE)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION raise_epochs_of_freeze()")
