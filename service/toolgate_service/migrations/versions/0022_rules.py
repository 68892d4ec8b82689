"""Add rules, and columns for the rule that requires an approval and for the permitted approvers.

A trigger raises the epoch of the environment when a rule changes.

Revision: 0022, after 0021.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TABLE = "rules"
#: tables whose rows contain the terms of an approval
WITH_TERMS = ("approvals", "grants")

SQLITE_TRIGGER = """
    CREATE TRIGGER {table}_epoch_{operation} AFTER {operation} ON {table} BEGIN
        INSERT INTO epochs (organization_id, environment, epoch)
        VALUES ({row}.organization_id, {row}.environment, 1)
        ON CONFLICT (organization_id, environment) DO UPDATE SET epoch = epochs.epoch + 1;
    END
"""


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("effect", sa.String(16), nullable=False),
        sa.Column("agents", sa.Text(), nullable=True),
        sa.Column("actions", sa.Text(), nullable=False),
        sa.Column("condition", sa.Text(), nullable=True),
        sa.Column("required_approvals", sa.Integer(), nullable=True),
        sa.Column("approval_ttl_seconds", sa.Integer(), nullable=True),
        sa.Column("approvers", sa.Text(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("updated_at", Timestamp(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=f"pk_{TABLE}"),
        sa.UniqueConstraint(
            "organization_id", "environment", "name", name=f"uq_{TABLE}_organization_id_environment_name"
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name=f"fk_{TABLE}_organization_id_environment",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "created_by"],
            ["users.organization_id", "users.id"],
            name=f"fk_{TABLE}_organization_id_created_by",
        ),
        sa.CheckConstraint(
            "effect IN ('forbid', 'require_approval', 'allow')", name=op.f(f"ck_{TABLE}_effect")
        ),
        sa.CheckConstraint("required_approvals >= 1", name=op.f(f"ck_{TABLE}_required_approvals")),
        sa.CheckConstraint("approval_ttl_seconds > 0", name=op.f(f"ck_{TABLE}_approval_ttl_seconds")),
    )
    op.create_index("ix_rules_listed", TABLE, ["organization_id", "environment", "created_at", "id"])
    for table in WITH_TERMS:
        op.add_column(table, sa.Column("approvers", sa.Text(), nullable=True))
    op.add_column("approvals", sa.Column("rule_id", Id(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE TRIGGER {TABLE}_epoch AFTER INSERT OR UPDATE OR DELETE ON {TABLE} "
            "FOR EACH ROW EXECUTE FUNCTION raise_epoch()"
        )
        return
    for operation in ("insert", "update", "delete"):
        row = "OLD" if operation == "delete" else "NEW"
        op.execute(SQLITE_TRIGGER.format(table=TABLE, operation=operation, row=row))


def downgrade() -> None:
    op.drop_column("approvals", "rule_id")
    for table in WITH_TERMS:
        op.drop_column(table, "approvers")
    op.drop_table(TABLE)
