"""Add access requests of the AuthZEN Access Request and Approval Profile.

Revision: 0028, after 0027.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

TENANT = ("organization_id", "environment")


def upgrade() -> None:
    op.create_table(
        "access_requests",
        sa.Column("id", Id(), nullable=False),
        *tenant(),
        sa.Column("key_id", Id(), nullable=False),
        sa.Column("submission", sa.Text(), nullable=False),
        sa.Column("is_bulk", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.String(255), nullable=True),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("callback", sa.Text(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_access_requests"),
        sa.UniqueConstraint(*TENANT, "id", name="uq_access_requests_organization_id_environment_id"),
        sa.ForeignKeyConstraint(
            TENANT,
            ["environments.organization_id", "environments.name"],
            name="fk_access_requests_organization_id_environment",
        ),
    )
    op.create_index("ix_access_requests_expires_at", "access_requests", ["expires_at"])
    has_key = sa.text("idempotency_key IS NOT NULL")
    op.create_index(
        "uq_access_requests_key",
        "access_requests",
        [*TENANT, "key_id", "idempotency_key"],
        unique=True,
        sqlite_where=has_key,
        postgresql_where=has_key,
    )
    has_callback = sa.text("callback IS NOT NULL")
    op.create_index(
        "ix_access_requests_callbacks",
        "access_requests",
        ["organization_id", "id"],
        sqlite_where=has_callback,
        postgresql_where=has_callback,
    )
    op.create_table(
        "access_request_items",
        sa.Column("request_id", Id(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        *tenant(),
        sa.Column("evaluation_id", Id(), nullable=False),
        sa.Column("approval_id", Id(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", "position", name="pk_access_request_items"),
        sa.UniqueConstraint(*TENANT, "evaluation_id", name="uq_access_request_items_evaluation"),
        sa.ForeignKeyConstraint(
            [*TENANT, "request_id"],
            [f"access_requests.{name}" for name in (*TENANT, "id")],
            name="fk_access_request_items_organization_id_environment_request_id",
        ),
    )
    op.create_index(
        "ix_access_request_items_organization_id_environment_approval_id",
        "access_request_items",
        [*TENANT, "approval_id"],
    )
    op.create_index("ix_access_request_items_expires_at", "access_request_items", ["expires_at"])


def downgrade() -> None:
    op.drop_table("access_request_items")
    op.drop_table("access_requests")


def tenant() -> list[sa.Column[str]]:
    """Return the columns of the organization and the environment."""
    return [
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
    ]
