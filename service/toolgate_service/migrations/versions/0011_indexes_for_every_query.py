"""Add indexes for the maintenance jobs, for filtered log entries, and for lists of agents that are not deleted.

Revision: 0011, after 0010.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

#: table, columns and condition (None for a complete index) of each index, by the name of the index
INDEXES = {
    "ix_agents_listed": (
        "agents",
        ["organization_id", "environment", "created_at", "id"],
        "deleted_at IS NULL",
    ),
    "ix_log_entries_by_agent": (
        "log_entries",
        ["organization_id", "environment", "agent_id", "created_at", "id", "action", "status"],
        None,
    ),
    "ix_log_entries_by_action": (
        "log_entries",
        ["organization_id", "environment", "action", "created_at", "id", "status"],
        None,
    ),
    "ix_approvals_running_out": ("approvals", ["expires_at"], "status IN ('pending', 'approved')"),
    "ix_approvals_reminding": ("approvals", ["remind_at"], "status = 'pending'"),
    "ix_approvals_by_grant": ("approvals", ["grant_id"], "grant_id IS NOT NULL"),
    "ix_invitations_expires_at": ("invitations", ["expires_at"], None),
    "ix_password_resets_expires_at": ("password_resets", ["expires_at"], None),
    "ix_provider_events_received_at": ("provider_events", ["received_at"], None),
    "ix_webhook_secrets_expires_at": ("webhook_secrets", ["expires_at"], None),
    "ix_webhooks_deleted": ("webhooks", ["deleted_at"], "deleted_at IS NOT NULL"),
    "ix_invoices_failed": ("invoices", ["failed_at"], "failed_at IS NOT NULL"),
    "ix_subscriptions_failing": ("subscriptions", ["failing_since"], "failing_since IS NOT NULL"),
    "ix_subscriptions_trials": ("subscriptions", ["trial_ends_at"], "trial_ends_at IS NOT NULL"),
}
FORMER = {
    "ix_log_entries_agent_id": (
        "log_entries",
        ["organization_id", "environment", "agent_id", "created_at", "id"],
    ),
    "ix_log_entries_action": (
        "log_entries",
        ["organization_id", "environment", "action", "created_at", "id"],
    ),
    "ix_agents_organization_id_environment_created_at_id": (
        "agents",
        ["organization_id", "environment", "created_at", "id"],
    ),
    # Remove these indexes, because SQLite used them to list the requests of one organization and then read the pending
    # requests of all organizations.
    "ix_approvals_status_expires_at": ("approvals", ["status", "expires_at"]),
    "ix_approvals_status_remind_at": ("approvals", ["status", "remind_at"]),
}


def upgrade() -> None:
    for name, (table, columns, condition) in INDEXES.items():
        where = None if condition is None else sa.text(condition)
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
    for name, (table, _) in FORMER.items():
        op.drop_index(name, table)


def downgrade() -> None:
    for name, (table, columns) in FORMER.items():
        op.create_index(name, table, columns)
    for name, (table, _, _) in INDEXES.items():
        op.drop_index(name, table)
