"""Add webhooks, their secrets, events and deliveries.

Revision: 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

from toolgate_service.db.models import Id, Timestamp

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

PENDING = sa.text("status = 'pending'")
CURRENT = sa.text("expires_at IS NULL")


def upgrade() -> None:
    _webhooks()
    _secrets()
    _events()
    _deliveries()


def _tenant(table: str, *more: SchemaItem) -> tuple[SchemaItem, ...]:
    return (
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        *more,
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
    )


def _in_environment(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["organization_id", "environment"],
        ["environments.organization_id", "environments.name"],
        name=f"fk_{table}_organization_id_environment",
    )


def _of(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["organization_id", "environment", column],
        [f"{target}.organization_id", f"{target}.environment", f"{target}.id"],
        name=f"fk_{table}_organization_id_environment_{column}",
    )


def _pointed_at(table: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(
        "organization_id", "environment", "id", name=f"uq_{table}_organization_id_environment_id"
    )


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        *_tenant(
            "webhooks",
            sa.Column("kind", sa.String(10), nullable=False),
            sa.Column("url", sa.Text(), nullable=False),
            sa.Column("description", sa.String(1000), nullable=True),
            sa.Column("events", sa.Text(), nullable=True),
            sa.Column("include_context", sa.Boolean(), nullable=False),
            sa.Column("is_active", sa.Boolean(), nullable=False),
            sa.Column("disabled_reason", sa.String(255), nullable=True),
            sa.Column("disabled_at", Timestamp(), nullable=True),
            sa.Column("last_success_at", Timestamp(), nullable=True),
            sa.Column("created_by", Id(), nullable=False),
            sa.Column("created_at", Timestamp(), nullable=False),
            sa.Column("updated_at", Timestamp(), nullable=True),
            sa.Column("deleted_at", Timestamp(), nullable=True),
        ),
        sa.CheckConstraint("kind IN ('standard', 'slack')", name=op.f("ck_webhooks_kind")),
        _in_environment("webhooks"),
        sa.ForeignKeyConstraint(
            ["organization_id", "created_by"],
            ["users.organization_id", "users.id"],
            name="fk_webhooks_organization_id_created_by",
        ),
        _pointed_at("webhooks"),
    )
    op.create_index(
        "ix_webhooks_organization_id_environment_created_at_id",
        "webhooks",
        ["organization_id", "environment", "created_at", "id"],
    )


def _secrets() -> None:
    op.create_table(
        "webhook_secrets",
        *_tenant(
            "webhook_secrets",
            sa.Column("webhook_id", Id(), nullable=False),
            sa.Column("purpose", sa.String(20), nullable=False),
            sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
            sa.Column("created_at", Timestamp(), nullable=False),
            sa.Column("expires_at", Timestamp(), nullable=True),
        ),
        _of("webhook_secrets", "webhook_id", "webhooks"),
    )
    op.create_index("ix_webhook_secrets_webhook_id_purpose", "webhook_secrets", ["webhook_id", "purpose"])
    op.create_index(
        "uq_webhook_secrets_current",
        "webhook_secrets",
        ["webhook_id", "purpose"],
        unique=True,
        sqlite_where=CURRENT,
        postgresql_where=CURRENT,
    )


def _events() -> None:
    op.create_table(
        "events",
        *_tenant(
            "events",
            sa.Column("kind", sa.String(64), nullable=False),
            sa.Column("payload", sa.Text(), nullable=False),
            sa.Column("created_at", Timestamp(), nullable=False),
        ),
        _in_environment("events"),
        _pointed_at("events"),
    )
    op.create_index("ix_events_environment_created_at", "events", ["environment", "created_at"])


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        *_tenant(
            "deliveries",
            sa.Column("event_id", Id(), nullable=False),
            sa.Column("webhook_id", Id(), nullable=False),
            sa.Column("status", sa.String(10), nullable=False),
            sa.Column("attempts", sa.Integer(), nullable=False),
            sa.Column("next_attempt_at", Timestamp(), nullable=True),
            sa.Column("claimed_until", Timestamp(), nullable=True),
            sa.Column("response_code", sa.Integer(), nullable=True),
            sa.Column("error", sa.String(255), nullable=True),
            sa.Column("last_attempt_at", Timestamp(), nullable=True),
            sa.Column("delivered_at", Timestamp(), nullable=True),
            sa.Column("created_at", Timestamp(), nullable=False),
        ),
        sa.CheckConstraint("status IN ('pending', 'delivered', 'failed')", name=op.f("ck_deliveries_status")),
        _of("deliveries", "event_id", "events"),
        _of("deliveries", "webhook_id", "webhooks"),
    )
    for name, columns, where in (
        ("ix_deliveries_due", ["next_attempt_at"], PENDING),
        ("ix_deliveries_due_of_webhook", ["webhook_id", "next_attempt_at"], PENDING),
        ("ix_deliveries_of_webhook", ["webhook_id", "created_at", "id"], None),
        ("ix_deliveries_by_status", ["webhook_id", "status", "created_at", "id"], None),
        ("ix_deliveries_environment_created_at", ["environment", "created_at"], None),
        ("ix_deliveries_event_id", ["event_id"], None),
    ):
        op.create_index(name, "deliveries", columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    for table in ("deliveries", "events", "webhook_secrets", "webhooks"):
        op.drop_table(table)
