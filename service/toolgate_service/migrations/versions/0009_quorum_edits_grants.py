"""Add reminders, approvals with an edited context, and temporary approvals (grants).

Revision: 0009, after 0008.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

from toolgate_service.db.models import Id, Timestamp

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMNS: dict[str, TypeEngine[Any]] = {"remind_at": Timestamp(), "replaces": Id(), "grant_id": Id()}
TENANT = ("organization_id", "environment")


def upgrade() -> None:
    for name, kind in COLUMNS.items():
        op.add_column("approvals", sa.Column(name, kind, nullable=True))
    op.create_index("ix_approvals_status_remind_at", "approvals", ["status", "remind_at"])
    _grants()
    _grant_votes()


def _grants() -> None:
    op.create_table(
        "grants",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("agent_id", Id(), nullable=False),
        sa.Column("permission_id", Id(), nullable=False),
        sa.Column("approval_id", Id(), nullable=False),
        sa.Column("action", sa.String(255), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("except_fields", sa.Text(), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("uses_left", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Integer(), nullable=False),
        sa.Column("required_approvals", sa.Integer(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("starts_at", Timestamp(), nullable=True),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.Column("revoked_by", Id(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_grants"),
        sa.UniqueConstraint(*TENANT, "id", name="uq_grants_organization_id_environment_id"),
        # Only one temporary approval per approval request, even if two approvers propose one concurrently.
        sa.UniqueConstraint(*TENANT, "approval_id", name="uq_grants_organization_id_environment_approval_id"),
        sa.CheckConstraint("status IN ('proposed', 'active', 'revoked')", name=op.f("ck_grants_status")),
        sa.CheckConstraint("uses_left >= 0 AND uses_left <= uses", name=op.f("ck_grants_uses_left")),
        sa.ForeignKeyConstraint(
            [*TENANT, "agent_id"],
            ["agents.organization_id", "agents.environment", "agents.id"],
            name="fk_grants_organization_id_environment_agent_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "revoked_by"],
            ["users.organization_id", "users.id"],
            name="fk_grants_organization_id_revoked_by",
        ),
    )
    op.create_index("ix_grants_listed", "grants", [*TENANT, "created_at", "id"])
    op.create_index("ix_grants_usable", "grants", [*TENANT, "agent_id", "action", "status", "expires_at"])


def _grant_votes() -> None:
    op.create_table(
        "grant_votes",
        sa.Column("grant_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("note", sa.String(1000), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("grant_id", "user_id", name="pk_grant_votes"),
        sa.ForeignKeyConstraint(
            [*TENANT, "grant_id"],
            ["grants.organization_id", "grants.environment", "grants.id"],
            name="fk_grant_votes_organization_id_environment_grant_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_grant_votes_organization_id_user_id",
        ),
    )


def downgrade() -> None:
    op.drop_table("grant_votes")
    op.drop_table("grants")
    op.drop_index("ix_approvals_status_remind_at", "approvals")
    for name in COLUMNS:
        op.drop_column("approvals", name)
