"""Store the approval rules with approval requests and temporary approvals, and who loosened a permission.

Revision: 0016, after 0015.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import ExactDecimal

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

COLUMNS: tuple[tuple[str, str, type[Any]], ...] = (
    ("approvals", "separation_of_duties", sa.Boolean),
    ("approvals", "makers", sa.Text),
    ("approvals", "max_amount", ExactDecimal),
    ("approvals", "amount_required", sa.Boolean),
    ("grants", "separation_of_duties", sa.Boolean),
    ("grants", "makers", sa.Text),
    ("permissions", "loosened_by", sa.Text),
)

# Open requests get the current rules of their permission, because the rules at their creation were not stored.
_MAKERS = """
    SELECT '["' || CAST(a.created_by AS VARCHAR(36)) || '", "' || CAST(p.created_by AS VARCHAR(36)) || '"]'
    FROM permissions p JOIN agents a ON a.id = p.agent_id WHERE p.id = {table}.permission_id
"""
_OPEN = {"approvals": "status IN ('pending', 'approved')", "grants": "status IN ('proposed', 'active')"}
_COPIED = {
    "approvals": ("separation_of_duties", "max_amount", "amount_required"),
    "grants": ("separation_of_duties",),
}


def upgrade() -> None:
    for table, name, kind in COLUMNS:
        op.add_column(table, sa.Column(name, kind(), nullable=True))
    for table, names in _COPIED.items():
        values = [
            f"{name} = (SELECT p.{name} FROM permissions p WHERE p.id = {table}.permission_id)"  # noqa: S608 - the inserted names are constants
            for name in names
        ]
        values.append(f"makers = ({_MAKERS.format(table=table)})")
        op.execute(f"UPDATE {table} SET {', '.join(values)} WHERE {_OPEN[table]}")  # noqa: S608 - the inserted names are constants


def downgrade() -> None:
    for table, name, _ in reversed(COLUMNS):
        op.drop_column(table, name)
