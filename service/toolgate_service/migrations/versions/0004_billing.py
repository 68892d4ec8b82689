"""Add subscriptions and events of the payment provider, and the causes for which an organization is inactive.

Revision: 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("provider_subscription_id", sa.String(255), nullable=False),
        sa.Column("provider_customer_id", sa.String(255), nullable=False),
        sa.Column("price_ids", sa.Text(), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("current_period_start", Timestamp(), nullable=True),
        sa.Column("current_period_end", Timestamp(), nullable=True),
        sa.Column("cancel_at_period_end", sa.Boolean(), nullable=False),
        sa.Column("trial_ends_at", Timestamp(), nullable=True),
        sa.Column("trial_expired", sa.Boolean(), nullable=False),
        sa.Column("failing_since", Timestamp(), nullable=True),
        sa.Column("provider_created_at", Timestamp(), nullable=False),
        sa.Column("provider_updated_at", Timestamp(), nullable=False),
        sa.Column("provider_rank", sa.Integer(), nullable=False),
        sa.Column("unseen", sa.Text(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_subscriptions_organization_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_subscriptions"),
        sa.UniqueConstraint(
            "organization_id",
            "provider_subscription_id",
            name="uq_subscriptions_organization_id_provider_subscription_id",
        ),
    )
    op.create_table(
        "invoices",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("provider_invoice_id", sa.String(255), nullable=False),
        sa.Column("provider_customer_id", sa.String(255), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.String(10), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("invoice_pdf", sa.Text(), nullable=True),
        sa.Column("failed_at", Timestamp(), nullable=True),
        sa.Column("provider_updated_at", Timestamp(), nullable=False),
        sa.Column("provider_rank", sa.Integer(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_invoices_organization_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_invoices"),
        sa.UniqueConstraint(
            "organization_id", "provider_invoice_id", name="uq_invoices_organization_id_provider_invoice_id"
        ),
    )
    op.create_index(
        "ix_invoices_organization_id_created_at_id", "invoices", ["organization_id", "created_at", "id"]
    )
    op.create_table(
        "provider_events",
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(255), nullable=False),
        sa.Column("provider_customer_id", sa.String(255), nullable=True),
        sa.Column("provider_created_at", Timestamp(), nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("facts", sa.Text(), nullable=True),
        sa.Column("received_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('applied', 'stale', 'unlinked', 'unpriced')", name=op.f("ck_provider_events_outcome")
        ),
        sa.PrimaryKeyConstraint("id", name="pk_provider_events"),
    )
    op.create_index("ix_provider_events_provider_customer_id", "provider_events", ["provider_customer_id"])
    op.create_table(
        "deactivations",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("cause", sa.String(10), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint("cause IN ('operator', 'payment')", name=op.f("ck_deactivations_cause")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_deactivations_organization_id"
        ),
        sa.PrimaryKeyConstraint("organization_id", "cause", name="pk_deactivations"),
    )


def downgrade() -> None:
    for table in ("deactivations", "provider_events", "invoices", "subscriptions"):
        op.drop_table(table)
