"""Add a version number (epoch) to each environment. Triggers increase it when data changes that a check reads.

The triggers also count changes by older gateways, which do not use the epoch, and by operators who change rows
directly. A gateway can therefore use cached data as long as the epoch has not changed.

Revision: 0019, after 0018.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

#: tables that a check reads and whose rows belong to one environment
SCOPED = ("api_keys", "agents", "permissions")
OPERATIONS = ("insert", "update", "delete")

FUNCTIONS = (
    """
    CREATE FUNCTION raise_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO epochs AS e (organization_id, environment, epoch)
        VALUES (coalesce(NEW.organization_id, OLD.organization_id), coalesce(NEW.environment, OLD.environment), 1)
        ON CONFLICT (organization_id, environment) DO UPDATE SET epoch = e.epoch + 1;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION raise_epochs() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO epochs AS e (organization_id, environment, epoch)
        SELECT organization_id, name, 1 FROM environments WHERE organization_id = NEW.id ORDER BY name
        ON CONFLICT (organization_id, environment) DO UPDATE SET epoch = e.epoch + 1;
        RETURN NULL;
    END $$
    """,
)

SQLITE_SCOPED = """
    CREATE TRIGGER {table}_epoch_{operation} AFTER {operation} ON {table} BEGIN
        INSERT INTO epochs (organization_id, environment, epoch)
        VALUES ({row}.organization_id, {row}.environment, 1)
        ON CONFLICT (organization_id, environment) DO UPDATE SET epoch = epochs.epoch + 1;
    END
"""

SQLITE_ORGANIZATION = """
    CREATE TRIGGER organizations_epoch_update AFTER UPDATE ON organizations BEGIN
        INSERT INTO epochs (organization_id, environment, epoch)
        SELECT organization_id, name, 1 FROM environments WHERE organization_id = NEW.id
        ON CONFLICT (organization_id, environment) DO UPDATE SET epoch = epochs.epoch + 1;
    END
"""


def upgrade() -> None:
    op.create_table(
        "epochs",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "environment", name="pk_epochs"),
        sa.ForeignKeyConstraint(
            ["organization_id", "environment"],
            ["environments.organization_id", "environments.name"],
            name="fk_epochs_organization_id_environment",
        ),
    )
    op.execute(
        "INSERT INTO epochs (organization_id, environment, epoch) SELECT organization_id, name, 1 FROM environments"
    )
    if op.get_bind().dialect.name == "postgresql":
        for function in FUNCTIONS:
            op.execute(function)
        for table in SCOPED:
            op.execute(
                f"CREATE TRIGGER {table}_epoch AFTER INSERT OR UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION raise_epoch()"
            )
        op.execute(
            "CREATE TRIGGER organizations_epoch AFTER UPDATE ON organizations "
            "FOR EACH ROW EXECUTE FUNCTION raise_epochs()"
        )
        return
    for table in SCOPED:
        for operation in OPERATIONS:
            row = "OLD" if operation == "delete" else "NEW"
            op.execute(SQLITE_SCOPED.format(table=table, operation=operation, row=row))
    op.execute(SQLITE_ORGANIZATION)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in (*SCOPED, "organizations"):
            op.execute(f"DROP TRIGGER {table}_epoch ON {table}")
        op.execute("DROP FUNCTION raise_epoch()")
        op.execute("DROP FUNCTION raise_epochs()")
    else:
        for table in SCOPED:
            for operation in OPERATIONS:
                op.execute(f"DROP TRIGGER {table}_epoch_{operation}")
        op.execute("DROP TRIGGER organizations_epoch_update")
    op.drop_table("epochs")
