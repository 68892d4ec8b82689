"""On PostgreSQL, partition the table of log entries by month. On SQLite, change nothing.

No entry is copied, because the existing table becomes a partition of the new table. There are three cases. An empty
table becomes the partition for all past months. A small table becomes the partition for everything up to the end of the
next month; the server reads the table once to validate these bounds. A large table becomes the default partition,
because reading it would delay other writers; a maintenance job later sets its bounds while other transactions write
(module `logs.partitions`).

Revision: 0015, after 0014.
"""

import time
from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

#: size in bytes of a small table; while the server reads the table to validate the bounds, writers must wait, but for a
#: table of this size only for some hundredths of a second
SMALL = 16_000_000
#: number of months for which partitions are created, including the current month
AHEAD = 3
#: maximum number of attempts to lock the table, about one per second
TRIES = 600

KEY = "organization_id, environment, created_at, id"
INDEXES = {
    "ix_log_entries_by_agent": "organization_id, environment, agent_id, created_at, id, action, status",
    "ix_log_entries_by_action": "organization_id, environment, action, created_at, id, status",
    "ix_log_entries_status": "organization_id, environment, status, created_at, id",
}
AGENT = """
    ADD CONSTRAINT fk_log_entries_organization_id_environment_agent_id FOREIGN KEY (organization_id, environment, agent_id)
    REFERENCES agents (organization_id, environment, id)
"""


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    _lock(connection)
    size = connection.scalar(sa.text("SELECT pg_relation_size('log_entries')"))
    small = size <= SMALL
    former = "log_entries_past" if small else "log_entries_default"
    _rename(former)
    op.execute(
        f"CREATE TABLE log_entries (LIKE {former} INCLUDING DEFAULTS INCLUDING CONSTRAINTS, "
        f"CONSTRAINT pk_log_entries PRIMARY KEY ({KEY})) PARTITION BY RANGE (created_at)"
    )
    op.execute(f"ALTER TABLE log_entries {AGENT}")
    for name, columns in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON log_entries ({columns})")
    if not small:
        op.execute(f"ALTER TABLE log_entries ATTACH PARTITION {former} DEFAULT")
        return
    present, newest = connection.execute(
        sa.select(
            sa.text("date_trunc('month', now() AT TIME ZONE 'UTC'), max(created_at AT TIME ZONE 'UTC')")
        ).select_from(sa.table(former))
    ).one()
    first = present if newest is None else _later(max(_later(present, 1), newest), 1)
    op.execute(
        f"ALTER TABLE log_entries ATTACH PARTITION {former} FOR VALUES FROM (MINVALUE) TO ('{first:%Y-%m-01} 00:00+00')"
    )
    while first < _later(present, AHEAD):
        op.execute(
            f"CREATE TABLE log_entries_{first:%Y_%m} PARTITION OF log_entries "
            f"FOR VALUES FROM ('{first:%Y-%m-01} 00:00+00') TO ('{_later(first, 1):%Y-%m-01} 00:00+00')"
        )
        first = _later(first, 1)
    op.execute("CREATE TABLE log_entries_default PARTITION OF log_entries DEFAULT")


def _lock(connection: sa.Connection) -> None:
    # Use a short lock timeout: while the migration waits for a long reader of the table, such as an export, all later
    # statements on the table wait too. The timeout is shorter than the server's deadlock timeout. The tables are locked
    # in the order in which writers lock them.
    connection.execute(sa.text("SELECT set_config('lock_timeout', '500ms', true)"))
    for left in reversed(range(TRIES)):
        try:
            with connection.begin_nested():
                connection.execute(sa.text("LOCK TABLE agents, log_entries IN ACCESS EXCLUSIVE MODE"))
        except sa.exc.DBAPIError:
            if not left:
                raise
            time.sleep(0.5)
        else:
            break
    connection.execute(sa.text("SELECT set_config('lock_timeout', '0', true)"))


def _rename(former: str) -> None:
    op.execute(f"ALTER TABLE log_entries RENAME TO {former}")
    op.execute(f"ALTER INDEX pk_log_entries RENAME TO {former}_pkey")
    for name in INDEXES:
        op.execute(f"ALTER INDEX {name} RENAME TO {name.replace('log_entries', former)}")


def _later(moment: datetime, months: int) -> datetime:
    """Return the start of the month that is `months` months after the month of `moment`."""
    years, month = divmod(moment.month - 1 + months, 12)
    return moment.replace(
        year=moment.year + years, month=month + 1, day=1, hour=0, minute=0, second=0, microsecond=0
    )


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("ALTER TABLE log_entries RENAME TO log_entries_in_months")
    for name in ("pk_log_entries", *INDEXES):
        op.execute(f"ALTER INDEX {name} RENAME TO {name}_in_months")
    op.execute(
        "CREATE TABLE log_entries (LIKE log_entries_in_months INCLUDING DEFAULTS INCLUDING CONSTRAINTS, "
        f"CONSTRAINT pk_log_entries PRIMARY KEY ({KEY}))"
    )
    op.execute("INSERT INTO log_entries SELECT * FROM log_entries_in_months")
    op.execute("DROP TABLE log_entries_in_months")
    op.execute(f"ALTER TABLE log_entries {AGENT}")
    for name, columns in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON log_entries ({columns})")
