"""Decision store for PostgreSQL. It uses connections of the log store."""

from collections.abc import Sequence

from toolgate_service.decisions.recorder import COLUMNS, Row, time_of_prefix
from toolgate_service.logs.store_postgres import PostgresLogStore
from toolgate_service.transparency.chunks import Chunk
from toolgate_service.transparency.statements import columns, insert_chunks

_UUIDS = frozenset({"id", "organization_id", "agent_id", "key_id", "permission_id", "rule_id", "approval_id"})
_OTHER_TYPES = {"created_at": "timestamptz", "policy_revision": "bigint"}
# Send ids as text, because the driver encodes text faster than UUID objects.
_ARRAYS = ", ".join(
    f"${place}::text[]::uuid[]" if name in _UUIDS else f"${place}::{_OTHER_TYPES.get(name, 'text')}[]"
    for place, name in enumerate(COLUMNS, 1)
)
# Insert leaves only if this statement has inserted rows: if an earlier attempt was committed, all leaves exist already.
_WAS_WRITTEN = "EXISTS (SELECT FROM written)"
_INSERT = (
    f"WITH written AS (INSERT INTO decisions ({', '.join(COLUMNS)}) SELECT * FROM unnest({_ARRAYS}) "  # noqa: S608 - the inserted text is a constant
    f"ON CONFLICT DO NOTHING RETURNING id), {insert_chunks(len(COLUMNS) + 1, _WAS_WRITTEN)} SELECT"
)


class PostgresDecisionStore:
    """Decision store that writes each batch with one statement."""

    def __init__(self, log_store: PostgresLogStore) -> None:
        self._pool = log_store.background_pool
        self.time_format = time_of_prefix

    async def write(self, rows: Sequence[Row], chunks: Sequence[Chunk]) -> None:
        """Write rows and chunks in one transaction. Nothing is written if the rows already exist.

        Raises:
            StorageFault: No row was written, or the connection was lost and the outcome is unknown.
        """
        await self._pool.rows(_INSERT, *zip(*rows, strict=True), *columns(chunks))
