"""On PostgreSQL the log in months: a table partitioned by when entries were written. SQLite stays as it is.

No entry is copied. The table that there was becomes a partition: of all that is past when it is empty; when it is small, of
everything up to the end of the next month, for which it is read once. A large one would keep writers waiting meanwhile: it
becomes the partition of whatever has no month, which the server need not read, and the upkeep gives it its bounds while
everybody writes (`logs/months/`).

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

#: bytes of a table that is read while writers wait: some hundredths of a second
SMALL = 16_000_000
#: months that are there ahead, the present one among them
AHEAD = 3
#: so often it is tried to be alone with the table, about once a second
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
    # In short tries: whoever reads for long, an export for instance, is not waited for in front of all writers. They are
    # shorter than the server takes to call two that wait for each other a deadlock, and agents come first, as in a writer's
    # transaction.
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
    """Return the beginning of a month, so many after that of a moment."""
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
