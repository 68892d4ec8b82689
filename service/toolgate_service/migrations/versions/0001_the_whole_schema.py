"""Create the initial schema.

Revision: 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import ExactDecimal, Id, Timestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "login_failures",
        sa.Column("subject", sa.String(80), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("last_failed_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("subject", name="pk_login_failures"),
    )
    op.create_table(
        "organizations",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("slug", sa.String(120), nullable=False),
        sa.Column("plan", sa.String(20), nullable=False),
        sa.Column("plan_changed_at", Timestamp(), nullable=True),
        sa.Column("retention_days_before", sa.Integer(), nullable=True),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("provider_customer_id", sa.String(255), nullable=True),
        sa.Column("ip_allow_list", sa.Text(), nullable=True),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "plan IN ('free', 'pro', 'business', 'enterprise')", name=op.f("ck_organizations_plan")
        ),
        sa.PrimaryKeyConstraint("id", name="pk_organizations"),
        sa.UniqueConstraint("provider_customer_id", name="uq_organizations_provider_customer_id"),
        sa.UniqueConstraint("slug", name="uq_organizations_slug"),
    )
    op.create_table(
        "audit_entries",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=True),
        sa.Column("user_id", Id(), nullable=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("resource_id", sa.String(64), nullable=True),
        sa.Column("changes", sa.Text(), nullable=True),
        sa.Column("ip_address", sa.String(45), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_audit_entries_organization_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_audit_entries"),
    )
    op.create_index(
        "ix_audit_entries_organization_id_created_at_id",
        "audit_entries",
        ["organization_id", "created_at", "id"],
    )
    op.create_table(
        "environments",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("name", sa.String(10), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("name IN ('production', 'test')", name=op.f("ck_environments_name")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_environments_organization_id"
        ),
        sa.PrimaryKeyConstraint("organization_id", "name", name="pk_environments"),
    )
    op.create_table(
        "users",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("email", sa.String(320), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("slack_user_id", sa.String(64), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("removed_at", Timestamp(), nullable=True),
        sa.CheckConstraint("role IN ('admin', 'member', 'viewer')", name=op.f("ck_users_role")),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name="fk_users_organization_id"),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("organization_id", "id", name="uq_users_organization_id_id"),
    )
    op.create_index(
        "uq_users_email",
        "users",
        ["email"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "agents",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("description", sa.String(1000), nullable=True),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("switched_off_by", Id(), nullable=True),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("deleted_at", Timestamp(), nullable=True),
        sa.CheckConstraint("status IN ('active', 'inactive')", name=op.f("ck_agents_status")),
        sa.ForeignKeyConstraint(
            ["organization_id", "created_by"],
            ["users.organization_id", "users.id"],
            name="fk_agents_organization_id_created_by",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name="fk_agents_organization_id_environment",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "switched_off_by"],
            ["users.organization_id", "users.id"],
            name="fk_agents_organization_id_switched_off_by",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_agents"),
        sa.UniqueConstraint(
            "organization_id", "environment", "id", name="uq_agents_organization_id_environment_id"
        ),
    )
    op.create_index(
        "ix_agents_organization_id_environment_created_at_id",
        "agents",
        ["organization_id", "environment", "created_at", "id"],
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("surface", sa.String(10), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.CheckConstraint("surface IN ('check', 'log')", name=op.f("ck_idempotency_keys_surface")),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name="fk_idempotency_keys_organization_id_environment",
        ),
        sa.PrimaryKeyConstraint(
            "organization_id", "environment", "surface", "key", name="pk_idempotency_keys"
        ),
    )
    op.create_index("ix_idempotency_keys_expires_at", "idempotency_keys", ["expires_at"])
    op.create_table(
        "invitations",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("email", sa.String(320), nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("invited_by", Id(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("accepted_at", Timestamp(), nullable=True),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.CheckConstraint("role IN ('admin', 'member', 'viewer')", name=op.f("ck_invitations_role")),
        sa.ForeignKeyConstraint(
            ["organization_id", "invited_by"],
            ["users.organization_id", "users.id"],
            name="fk_invitations_organization_id_invited_by",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_invitations"),
        sa.UniqueConstraint("token_hash", name="uq_invitations_token_hash"),
    )
    op.create_index("ix_invitations_organization_id", "invitations", ["organization_id"])
    op.create_table(
        "monthly_usage",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("log_entries", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name="fk_monthly_usage_organization_id_environment",
        ),
        sa.PrimaryKeyConstraint("organization_id", "environment", "month", name="pk_monthly_usage"),
    )
    op.create_table(
        "password_resets",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("used_at", Timestamp(), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_password_resets_organization_id_user_id",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_password_resets"),
        sa.UniqueConstraint("token_hash", name="uq_password_resets_token_hash"),
    )
    op.create_index("ix_password_resets_user_id", "password_resets", ["user_id"])
    op.create_table(
        "rate_windows",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("surface", sa.String(10), nullable=False),
        sa.Column("minute", sa.Integer(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name="fk_rate_windows_organization_id_environment",
        ),
        sa.PrimaryKeyConstraint("organization_id", "environment", "surface", name="pk_rate_windows"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("scope", sa.String(10), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.CheckConstraint("scope IN ('full', 'cli')", name=op.f("ck_sessions_scope")),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_sessions_organization_id_user_id",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])
    op.create_table(
        "api_keys",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("agent_id", Id(), nullable=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("last_four", sa.String(4), nullable=False),
        sa.Column("created_by", Id(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id", "created_by"],
            ["users.organization_id", "users.id"],
            name="fk_api_keys_organization_id_created_by",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment", "agent_id"],
            ["agents.organization_id", "agents.environment", "agents.id"],
            name="fk_api_keys_organization_id_environment_agent_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name="fk_api_keys_organization_id_environment",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    op.create_index(
        "uq_api_keys_organization_key",
        "api_keys",
        ["organization_id", "environment"],
        unique=True,
        sqlite_where=sa.text("agent_id IS NULL AND revoked_at IS NULL"),
        postgresql_where=sa.text("agent_id IS NULL AND revoked_at IS NULL"),
    )
    op.create_table(
        "approvals",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("agent_id", Id(), nullable=False),
        sa.Column("permission_id", Id(), nullable=False),
        sa.Column("action", sa.String(255), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(255), nullable=False),
        sa.Column("call_id", sa.String(255), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("key_id", Id(), nullable=False),
        sa.Column("required_approvals", sa.Integer(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("reminded_at", Timestamp(), nullable=True),
        sa.Column("decided_at", Timestamp(), nullable=True),
        sa.Column("decided_by", Id(), nullable=True),
        sa.Column("note", sa.String(1000), nullable=True),
        sa.Column("consumed_at", Timestamp(), nullable=True),
        sa.Column("consumed_call_id", sa.String(255), nullable=False),
        sa.Column("decision_id", Id(), nullable=True),
        sa.Column("cancelled_at", Timestamp(), nullable=True),
        sa.Column("cancel_reason", sa.String(255), nullable=True),
        sa.Column("replaced_by", Id(), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'approved', 'denied', 'expired', 'cancelled', 'replaced', 'consumed')",
            name=op.f("ck_approvals_status"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "decided_by"],
            ["users.organization_id", "users.id"],
            name="fk_approvals_organization_id_decided_by",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment", "agent_id"],
            ["agents.organization_id", "agents.environment", "agents.id"],
            name="fk_approvals_organization_id_environment_agent_id",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_approvals"),
        sa.UniqueConstraint(
            "organization_id", "environment", "id", name="uq_approvals_organization_id_environment_id"
        ),
    )
    op.create_index(
        "ix_approvals_organization_id_environment_agent_id_action_digest",
        "approvals",
        ["organization_id", "environment", "agent_id", "action", "digest"],
    )
    op.create_index(
        "ix_approvals_organization_id_environment_created_at_id",
        "approvals",
        ["organization_id", "environment", "created_at", "id"],
    )
    op.create_index("ix_approvals_status_expires_at", "approvals", ["status", "expires_at"])
    op.create_index(
        "uq_approvals_pending",
        "approvals",
        ["organization_id", "environment", "agent_id", "permission_id", "digest", "run_id", "call_id"],
        unique=True,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "denial_clearances",
        sa.Column("agent_id", Id(), nullable=False),
        sa.Column("action", sa.String(255), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("cleared_by", Id(), nullable=False),
        sa.Column("cleared_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "cleared_by"],
            ["users.organization_id", "users.id"],
            name="fk_denial_clearances_organization_id_cleared_by",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment", "agent_id"],
            ["agents.organization_id", "agents.environment", "agents.id"],
            name="fk_denial_clearances_organization_id_environment_agent_id",
        ),
        sa.PrimaryKeyConstraint("agent_id", "action", name="pk_denial_clearances"),
    )
    op.create_table(
        "log_entries",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("agent_id", Id(), nullable=False),
        sa.Column("action", sa.String(255), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("context", sa.Text(), nullable=True),
        sa.Column("ip_address", sa.String(45), nullable=True),
        sa.Column("address_seen", sa.String(45), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("occurred_at", Timestamp(), nullable=True),
        sa.Column("decision_id", sa.String(255), nullable=True),
        sa.Column("approval_id", sa.String(255), nullable=True),
        sa.Column("call_id", sa.String(255), nullable=True),
        sa.Column("run_id", sa.String(255), nullable=True),
        sa.Column("key_id", Id(), nullable=False),
        sa.CheckConstraint(
            "status IN ('success', 'failed', 'pending', 'denied')", name=op.f("ck_log_entries_status")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment", "agent_id"],
            ["agents.organization_id", "agents.environment", "agents.id"],
            name="fk_log_entries_organization_id_environment_agent_id",
        ),
        sa.PrimaryKeyConstraint("organization_id", "environment", "created_at", "id", name="pk_log_entries"),
    )
    op.create_index(
        "ix_log_entries_action",
        "log_entries",
        ["organization_id", "environment", "action", "created_at", "id"],
    )
    op.create_index(
        "ix_log_entries_agent_id",
        "log_entries",
        ["organization_id", "environment", "agent_id", "created_at", "id"],
    )
    op.create_index(
        "ix_log_entries_status",
        "log_entries",
        ["organization_id", "environment", "status", "created_at", "id"],
    )
    op.create_table(
        "permissions",
        sa.Column("id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("agent_id", Id(), nullable=False),
        sa.Column("action", sa.String(255), nullable=False),
        sa.Column("requires_approval", sa.Boolean(), nullable=False),
        sa.Column("max_amount", ExactDecimal(), nullable=True),
        sa.Column("amount_required", sa.Boolean(), nullable=False),
        sa.Column("required_approvals", sa.Integer(), nullable=False),
        sa.Column("separation_of_duties", sa.Boolean(), nullable=False),
        sa.Column("approval_ttl_seconds", sa.Integer(), nullable=True),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.Column("updated_at", Timestamp(), nullable=True),
        sa.CheckConstraint("approval_ttl_seconds > 0", name=op.f("ck_permissions_approval_ttl_seconds")),
        sa.CheckConstraint("required_approvals >= 1", name=op.f("ck_permissions_required_approvals")),
        sa.ForeignKeyConstraint(
            ["organization_id", "created_by"],
            ["users.organization_id", "users.id"],
            name="fk_permissions_organization_id_created_by",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment", "agent_id"],
            ["agents.organization_id", "agents.environment", "agents.id"],
            name="fk_permissions_organization_id_environment_agent_id",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_permissions"),
        sa.UniqueConstraint(
            "organization_id",
            "environment",
            "agent_id",
            "action",
            name="uq_permissions_organization_id_environment_agent_id_action",
        ),
    )
    op.create_table(
        "approval_votes",
        sa.Column("approval_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("decision", sa.String(10), nullable=False),
        sa.Column("note", sa.String(1000), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint("decision IN ('approved', 'denied')", name=op.f("ck_approval_votes_decision")),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment", "approval_id"],
            ["approvals.organization_id", "approvals.environment", "approvals.id"],
            name="fk_approval_votes_organization_id_environment_approval_id",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name="fk_approval_votes_organization_id_user_id",
        ),
        sa.PrimaryKeyConstraint("approval_id", "user_id", name="pk_approval_votes"),
    )


def downgrade() -> None:
    for table in (
        "approval_votes",
        "permissions",
        "log_entries",
        "denial_clearances",
        "approvals",
        "api_keys",
        "sessions",
        "rate_windows",
        "password_resets",
        "monthly_usage",
        "invitations",
        "idempotency_keys",
        "agents",
        "users",
        "environments",
        "audit_entries",
        "organizations",
        "login_failures",
    ):
        op.drop_table(table)
