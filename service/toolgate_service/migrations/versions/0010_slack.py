"""Add links between Slack users and members of an organization.

Revision: 0010, after 0009.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def _of_user(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["organization_id", "user_id"],
        ["users.organization_id", "users.id"],
        name=f"fk_{table}_organization_id_user_id",
    )


def upgrade() -> None:
    op.create_table(
        "slack_links",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("team_id", sa.String(64), nullable=False),
        sa.Column("slack_user_id", sa.String(64), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_slack_links"),
        sa.UniqueConstraint("organization_id", "user_id", name="uq_slack_links_organization_id_user_id"),
        sa.UniqueConstraint(
            "organization_id",
            "team_id",
            "slack_user_id",
            name="uq_slack_links_organization_id_team_id_slack_user_id",
        ),
        _of_user("slack_links"),
    )
    op.create_table(
        "slack_link_codes",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("code_hash", sa.String(64), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("used_at", Timestamp(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_slack_link_codes"),
        sa.UniqueConstraint("code_hash", name="uq_slack_link_codes_code_hash"),
        _of_user("slack_link_codes"),
    )
    op.create_index(
        "ix_slack_link_codes_organization_id_user_id", "slack_link_codes", ["organization_id", "user_id"]
    )


def downgrade() -> None:
    op.drop_table("slack_link_codes")
    op.drop_table("slack_links")
