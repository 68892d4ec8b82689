"""Add links to Slack that belong to a Slack app, and the credential with which each vote was authenticated.

Revision: 0017, after 0016.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TABLE = "slack_app_links"


def upgrade() -> None:
    # Do not copy the rows of slack_links, because they do not refer to a Slack app. Copied rows could also become wrong
    # during a rolling update: the previous version deletes links and replaces signing secrets without changing the new
    # table.
    op.create_table(
        TABLE,
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("webhook_id", Id(), nullable=False),
        sa.Column("secret_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("team_id", sa.String(64), nullable=False),
        sa.Column("slack_user_id", sa.String(64), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{TABLE}"),
        sa.UniqueConstraint("secret_id", "user_id", name=f"uq_{TABLE}_secret_id_user_id"),
        sa.UniqueConstraint(
            "secret_id", "team_id", "slack_user_id", name=f"uq_{TABLE}_secret_id_team_id_slack_user_id"
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name=f"fk_{TABLE}_organization_id_user_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment", "webhook_id"],
            ["webhooks.organization_id", "webhooks.environment", "webhooks.id"],
            name=f"fk_{TABLE}_organization_id_environment_webhook_id",
            ondelete="CASCADE",
        ),
    )
    op.create_index(f"ix_{TABLE}_organization_id_user_id", TABLE, ["organization_id", "user_id"])
    op.create_index(f"ix_{TABLE}_webhook_id", TABLE, ["webhook_id"])
    op.add_column("slack_link_codes", sa.Column("secret_id", Id(), nullable=True))
    for votes in ("approval_votes", "grant_votes"):
        op.add_column(votes, sa.Column("credential", sa.Text(), nullable=True))


def downgrade() -> None:
    for votes in ("grant_votes", "approval_votes"):
        op.drop_column(votes, "credential")
    op.drop_column("slack_link_codes", "secret_id")
    op.drop_table(TABLE)
