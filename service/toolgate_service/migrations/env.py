"""Alembic's environment: runs the migrations on the connection it is handed, in that connection's transaction."""

from alembic import context

from toolgate_service.storage.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    compare_type=True,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
