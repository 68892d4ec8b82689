"""Environment script of Alembic: runs the migrations on the given connection, in the transaction of the connection."""

from collections.abc import Collection, Mapping
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo

from toolgate_service.db.migrate import CONTRACTS, raise_floor
from toolgate_service.migrations.metadata import METADATA


def note(
    ctx: MigrationContext,
    step: MigrationInfo,
    heads: Collection[Any],  # noqa: ARG001 - parameter required by Alembic
    run_args: Mapping[str, Any],  # noqa: ARG001 - parameter required by Alembic
) -> None:
    """Store the oldest schema revision that a gateway must know, after a migration that removes a table or a column."""
    contracts = getattr(getattr(step.up_revision, "module", None), CONTRACTS, None)
    if step.is_upgrade and contracts is not None and ctx.connection is not None:
        raise_floor(ctx.connection, contracts)


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    compare_type=True,
    render_as_batch=True,
    transactional_ddl=True,
    on_version_apply=note,
)
context.run_migrations()
