"""Add tables for policy revisions and shadow policies, and a column for the call's context to the decision log.

A trigger raises the epoch of the environment when a shadow policy begins or ends, but not when its counts change.

Revision: 0024, after 0023.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id, Timestamp

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

TENANT = ("organization_id", "environment")
COUNTS = ("unchanged", "newly_allowed", "newly_held", "newly_denied", "not_replayable")

SQLITE_TRIGGER = """
    CREATE TRIGGER policy_shadows_epoch_{operation} AFTER {operation} ON policy_shadows BEGIN
        INSERT INTO epochs (organization_id, environment, epoch)
        VALUES ({row}.organization_id, {row}.environment, 1)
        ON CONFLICT (organization_id, environment) DO UPDATE SET epoch = epochs.epoch + 1;
    END
"""


def upgrade() -> None:
    op.create_table(
        "policy_revisions",
        sa.Column("id", Id(), nullable=False),
        *tenant(),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("changes", sa.Text(), nullable=False),
        sa.Column("message", sa.String(1000), nullable=False),
        sa.Column("restores", sa.Integer(), nullable=True),
        *author(),
        sa.PrimaryKeyConstraint(*TENANT, "number", name="pk_policy_revisions"),
        *references("policy_revisions", "created_by"),
        sa.CheckConstraint("number >= 1", name=op.f("ck_policy_revisions_number")),
    )
    op.create_index("ix_policy_revisions_listed", "policy_revisions", [*TENANT, "created_at", "id"])
    op.create_table(
        "policy_shadows",
        *tenant(),
        sa.Column("id", Id(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("message", sa.String(1000), nullable=False),
        *author(),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in COUNTS),
        sa.PrimaryKeyConstraint(*TENANT, name="pk_policy_shadows"),
        *references("policy_shadows", "created_by"),
    )
    op.create_table(
        "policy_shadow_samples",
        *tenant(),
        sa.Column("shadow_id", Id(), nullable=False),
        sa.Column("decision_id", Id(), nullable=False),
        sa.Column("agent_id", Id(), nullable=False),
        sa.Column("action", sa.String(255), nullable=False),
        sa.Column("difference", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint(*TENANT, "shadow_id", "decision_id", name="pk_policy_shadow_samples"),
        *references("policy_shadow_samples"),
        sa.CheckConstraint(
            "difference IN ('newly_allowed', 'newly_held', 'newly_denied')",
            name=op.f("ck_policy_shadow_samples_difference"),
        ),
    )
    op.add_column("decisions", sa.Column("context", sa.Text(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE TRIGGER policy_shadows_epoch AFTER INSERT OR DELETE ON policy_shadows "
            "FOR EACH ROW EXECUTE FUNCTION raise_epoch()"
        )
        return
    for operation, row in (("insert", "NEW"), ("delete", "OLD")):
        op.execute(SQLITE_TRIGGER.format(operation=operation, row=row))


def tenant() -> list[sa.Column[str]]:
    return [
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
    ]


def author() -> "list[sa.Column[object]]":
    return [
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
    ]


def references(table: str, user: str | None = None) -> list[sa.ForeignKeyConstraint]:
    found = [
        sa.ForeignKeyConstraint(
            [*TENANT],
            ["environments.organization_id", "environments.name"],
            name=f"fk_{table}_organization_id_environment",
        )
    ]
    if user is not None:
        found.append(
            sa.ForeignKeyConstraint(
                ["organization_id", user],
                ["users.organization_id", "users.id"],
                name=f"fk_{table}_organization_id_{user}",
            )
        )
    return found


def downgrade() -> None:
    op.drop_column("decisions", "context")
    for table in ("policy_shadow_samples", "policy_shadows", "policy_revisions"):
        op.drop_table(table)
