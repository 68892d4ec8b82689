"""Add an index with which the API keys of one agent are found.

Revision: 0002, after 0001.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = "ix_api_keys_organization_id_environment_agent_id"


def upgrade() -> None:
    op.create_index(NAME, "api_keys", ["organization_id", "environment", "agent_id"])


def downgrade() -> None:
    op.drop_index(NAME, "api_keys")
