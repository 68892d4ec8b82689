"""Add the decision log, which records every decided check.

Revision: 0021, after 0020.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

TABLE = "decisions"
TENANT = ("organization_id", "environment")
PLACE = ("created_at", "id")
INDEXES = {
    "ix_decisions_by_agent": ("agent_id", None),
    "ix_decisions_by_run": ("run_id", "run_id IS NOT NULL"),
    "ix_decisions_by_outcome": ("outcome", "outcome <> 'allowed'"),
}


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("agent_id", Id(), nullable=True),
        sa.Column("requested_agent", sa.String(64), nullable=True),
        sa.Column("action", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(255), nullable=True),
        sa.Column("call_id", sa.String(255), nullable=True),
        sa.Column("key_id", Id(), nullable=False),
        sa.Column("context_digest", sa.String(64), nullable=False),
        sa.Column("policy_revision", sa.BigInteger(), nullable=True),
        sa.Column("permission_id", Id(), nullable=True),
        sa.Column("rule_id", Id(), nullable=True),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("reason_code", sa.String(40), nullable=False),
        sa.Column("approval_id", Id(), nullable=True),
        sa.PrimaryKeyConstraint(*TENANT, *PLACE, name=f"pk_{TABLE}"),
        sa.CheckConstraint(
            "outcome = 'allowed' OR outcome = 'denied' OR outcome = 'approval_required'",
            name=op.f(f"ck_{TABLE}_outcome"),
        ),
        sqlite_with_rowid=False,
    )
    for name, (column, condition) in INDEXES.items():
        where = None if condition is None else sa.text(condition)
        op.create_index(name, TABLE, [*TENANT, column, *PLACE], sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    op.drop_table(TABLE)
