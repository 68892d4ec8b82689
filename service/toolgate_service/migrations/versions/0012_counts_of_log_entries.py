"""Add counts of log entries, and compute them from the existing entries.

Revision: 0012, after 0011.
"""

import sqlalchemy as sa
from alembic import op

from toolgate_service.db.models import Id

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TENANT = ("organization_id", "environment")
COUNTS = ("succeeded", "failed", "blocked", "held")

#: SQL expressions for the hour and the day of a log entry, as numbers since 1970-01-01 UTC
HOURS = {
    "sqlite": "CAST(strftime('%s', substr(created_at, 1, 19)) AS INTEGER) / 3600",
    "postgresql": "floor(extract(epoch FROM created_at) / 3600)::int",
}
DAYS = {
    "sqlite": "CAST(strftime('%s', substr(created_at, 1, 19)) AS INTEGER) / 86400",
    "postgresql": "floor(extract(epoch FROM created_at) / 86400)::int",
}
SUMS = ", ".join(
    f"sum(CASE status WHEN '{status}' THEN 1 ELSE 0 END)"
    for status in ("success", "failed", "denied", "pending")
)
OF_TENANT = "FROM log_entries WHERE organization_id = :organization_id AND environment = :environment"


def upgrade() -> None:
    _log_counts()
    _day_counts()
    connection = op.get_bind()
    tenants = sa.text("SELECT organization_id, name FROM environments").columns(organization_id=Id)
    for organization_id, environment in connection.execute(tenants).all():
        for statement in _filling(connection.dialect.name):
            connection.execute(statement, {"organization_id": organization_id, "environment": environment})


def _filling(dialect: str) -> list[sa.TextClause]:
    """Return the statements that count the existing log entries of an environment.

    They insert the counts of all entries by hour, and the counts of agents and actions by day.
    """
    by_hour = (
        f"INSERT INTO log_counts ({', '.join(TENANT)}, subject, span, starts, name, {', '.join(COUNTS)}) "
        f"SELECT {', '.join(TENANT)}, 'all', 60, 60 * ({HOURS[dialect]}) AS starts, '', {SUMS} {OF_TENANT} "
        f"GROUP BY {', '.join(TENANT)}, starts"
    )
    by_day = (
        f"INSERT INTO day_counts ({', '.join(TENANT)}, subject, name, day, {', '.join(COUNTS)}, total) "
        f"SELECT {', '.join(TENANT)}, '{{subject}}', {{name}} AS name, {DAYS[dialect]} AS day, {SUMS}, count(*) "
        f"{OF_TENANT} GROUP BY {', '.join(TENANT)}, {{name}}, day"
    )
    statements = (
        by_hour,
        by_day.format(subject="agent", name="CAST(agent_id AS text)"),
        by_day.format(subject="action", name="action"),
    )
    return [sa.text(one).bindparams(sa.bindparam("organization_id", type_=Id())) for one in statements]


def _log_counts() -> None:
    op.create_table(
        "log_counts",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("subject", sa.String(10), nullable=False),
        sa.Column("span", sa.Integer(), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in COUNTS),
        sa.PrimaryKeyConstraint(*TENANT, "subject", "span", "starts", "name", name="pk_log_counts"),
        sa.CheckConstraint("subject IN ('all', 'agent', 'action')", name=op.f("ck_log_counts_subject")),
        _in_environment("log_counts"),
    )


def _day_counts() -> None:
    op.create_table(
        "day_counts",
        sa.Column("organization_id", Id(), nullable=False),
        sa.Column("environment", sa.String(10), nullable=False),
        sa.Column("subject", sa.String(10), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in (*COUNTS, "total")),
        sa.PrimaryKeyConstraint(*TENANT, "subject", "name", "day", name="pk_day_counts"),
        sa.CheckConstraint("subject IN ('agent', 'action')", name=op.f("ck_day_counts_subject")),
        _in_environment("day_counts"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_day_counts_most", "day_counts", [*TENANT, "subject", "day", "total"])


def _in_environment(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        list(TENANT),
        ["environments.organization_id", "environments.name"],
        name=f"fk_{table}_organization_id_environment",
    )


def downgrade() -> None:
    op.drop_table("day_counts")
    op.drop_table("log_counts")
