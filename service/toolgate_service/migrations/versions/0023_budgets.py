"""Add budgets with their totals and reservations, and the budget for which an approval request was created.

A trigger raises the epoch of the environment when a budget changes, but not when a total changes.

Revision: 0023, after 0022.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

TABLE = "budgets"

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
        *_tenant(),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("scope", sa.String(12), nullable=False),
        sa.Column("agents", sa.Text(), nullable=True),
        sa.Column("actions", sa.Text(), nullable=False),
        sa.Column("measure", sa.String(80), nullable=False),
        sa.Column("currency_arg", sa.String(64), nullable=True),
        sa.Column("period", sa.String(80), nullable=False),
        sa.Column("maximum", sa.Text(), nullable=False),
        sa.Column("at_limit", sa.String(16), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("updated_at", Timestamp(), nullable=True),
        *_keys(TABLE),
        sa.UniqueConstraint(
            "organization_id", "environment", "name", name=f"uq_{TABLE}_organization_id_environment_name"
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "created_by"],
            ["users.organization_id", "users.id"],
            name=f"fk_{TABLE}_organization_id_created_by",
        ),
        sa.CheckConstraint("scope IN ('organization', 'agent', 'run')", name=op.f(f"ck_{TABLE}_scope")),
        sa.CheckConstraint("at_limit IN ('deny', 'require_approval')", name=op.f(f"ck_{TABLE}_at_limit")),
    )
    op.create_index("ix_budgets_listed", TABLE, ["organization_id", "environment", "created_at", "id"])
    op.create_table(
        "budget_totals",
        *_tenant(),
        sa.Column("budget_id", Id(), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("currency", sa.String(16), nullable=False),
        sa.Column("starts_at", Timestamp(), nullable=False),
        sa.Column("ends_at", Timestamp(), nullable=False),
        sa.Column("subtracted_until", Timestamp(), nullable=True),
        sa.Column("settled", sa.Text(), nullable=False),
        sa.Column("reserved", sa.Text(), nullable=False),
        sa.Column("exceeded_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        *_keys("budget_totals"),
        sa.UniqueConstraint(
            *("budget_id", "subject", "currency", "starts_at"),
            name="uq_budget_totals_budget_id_subject_currency_starts_at",
        ),
    )
    op.create_index("ix_budget_totals_listed", "budget_totals", ["budget_id", "created_at", "id"])
    op.create_index("ix_budget_totals_ends_at", "budget_totals", ["ends_at"])
    op.create_table(
        "budget_reservations",
        *_tenant(),
        sa.Column("budget_id", Id(), nullable=False),
        sa.Column("total_id", Id(), nullable=False),
        sa.Column("decision_id", Id(), nullable=False),
        sa.Column("agent_id", Id(), nullable=False),
        sa.Column("action", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(255), nullable=True),
        sa.Column("amount", sa.Text(), nullable=False),
        sa.Column("settled_amount", sa.Text(), nullable=True),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("over_limit", sa.Boolean(), nullable=False),
        sa.Column("approval_id", Id(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("settled_at", Timestamp(), nullable=True),
        *_keys("budget_reservations"),
        sa.CheckConstraint(
            "state IN ('unsettled', 'settled', 'released')", name=op.f("ck_budget_reservations_state")
        ),
    )
    for name, columns in {
        "decision": ["decision_id"],
        "total": ["total_id", "created_at"],
        "listed": ["organization_id", "environment", "state", "created_at", "id"],
        "created_at": ["created_at"],
    }.items():
        op.create_index(f"ix_budget_reservations_{name}", "budget_reservations", columns)
    op.add_column("approvals", sa.Column("budget_id", Id(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE TRIGGER {TABLE}_epoch AFTER INSERT OR UPDATE OR DELETE ON {TABLE} "
            "FOR EACH ROW EXECUTE FUNCTION raise_epoch()"
        )
        return
    for operation in ("insert", "update", "delete"):
        row = "OLD" if operation == "delete" else "NEW"
        op.execute(SQLITE_TRIGGER.format(table=TABLE, operation=operation, row=row))


def _tenant() -> tuple[sa.Column[str], ...]:
    return (
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
    )


def _keys(table: str) -> tuple[sa.Constraint, ...]:
    return (
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name=f"fk_{table}_organization_id_environment",
        ),
    )


def downgrade() -> None:
    op.drop_column("approvals", "budget_id")
    for table in ("budget_reservations", "budget_totals", TABLE):
        op.drop_table(table)
