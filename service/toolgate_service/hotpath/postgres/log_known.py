"""What PostgreSQL holds about a batch of log entries: one question for all that a batch must know."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolgate_service.hotpath.batch import Known, Tenant, tenant_of
from toolgate_service.hotpath.news import LISTENS
from toolgate_service.ids import is_id
from toolgate_service.logs.entries import NewEntry
from toolgate_service.storage.base import TEST
from toolgate_service.storage.postgres_connection import WRITE_SETTINGS

if TYPE_CHECKING:
    from toolgate_service.storage.postgres_connection import Connection


async def begin(connection: "Connection", entries: Sequence[NewEntry], patience: int) -> None:
    """Begin a transaction in which nobody else writes entries of the same tenants.

    Until it ends their month and their keys are exact, in whatever gateway. Every gateway takes the locks in the same
    order, so that none waits for another in a circle.

    Args:
        connection: in no transaction.
        entries: to be written.
        patience: milliseconds to wait for these locks, and for each row that another transaction has changed.

    Raises:
        asyncpg.LockNotAvailableError: another gateway kept a lock for longer.
    """
    # In one round trip, which takes no values: identifiers of ours and names of environments.
    names = ", ".join(_literal(tenant) for tenant in _tenants(entries))
    await connection.execute(
        f"BEGIN; SET LOCAL lock_timeout = {patience}; {_LOCK.format(names=names)}; {_SETTINGS}"
    )


async def begin_available(
    connection: "Connection", entries: Sequence[NewEntry], patience: int
) -> frozenset[Tenant]:
    """Begin a transaction as `begin` does, wait for no tenant's lock, and return the tenants whose locks were free."""
    tenants = _tenants(entries)
    await connection.execute(f"BEGIN; SET LOCAL lock_timeout = {patience}; {_SETTINGS}")
    rows = await connection.fetch(_TRY_LOCK, [_name(tenant) for tenant in tenants])
    return frozenset(tenants[place - 1] for place, is_locked in rows if is_locked)


def _tenants(entries: Sequence[NewEntry]) -> Sequence[Tenant]:
    return sorted({tenant_of(entry) for entry in entries})


def _name(tenant: Tenant) -> str:
    return f"log entries of {'/'.join(tenant)}"


def _literal(tenant: Tenant) -> str:
    return f"'{_name(tenant)}'"


async def known(connection: "Connection", entries: Sequence[NewEntry]) -> Known:
    """Return what a batch must know, after `begin`; the moment is later than that of every batch before."""
    rows = await connection.fetch(
        KNOWN,
        [entry.organization_id for entry in entries],
        [entry.environment for entry in entries],
        [entry.agent_id if is_id(entry.agent_id) else None for entry in entries],
        [entry.idempotency_key for entry in entries],
    )
    agents: set[tuple[Tenant, str]] = set()
    used: dict[Tenant, int] = {}
    held: dict[Tenant, int] = {}
    answers: dict[tuple[Tenant, str], tuple[bytes, str]] = {}
    listening: set[Tenant] = set()
    for place, _, has_agent, listens, month, size, answer, fingerprint in rows:
        entry = entries[place - 1]
        tenant = tenant_of(entry)
        used[tenant] = month
        if has_agent:
            agents.add((tenant, entry.agent_id))
        if listens:
            listening.add(tenant)
        if size is not None:
            held[tenant] = size
        if entry.idempotency_key is not None and answer is not None:
            answers[tenant, entry.idempotency_key] = (answer, fingerprint)
    return Known(rows[0][1], frozenset(agents), used, held, answers, frozenset(listening))


_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest(ARRAY[{names}]) AS name"
_TRY_LOCK = """
SELECT place::int, pg_try_advisory_xact_lock(hashtextextended(name, 0))
FROM unnest($1::text[]) WITH ORDINALITY AS asked (name, place)
"""
_SETTINGS = f"SELECT {WRITE_SETTINGS}"

# Row by row, and by limits that the planner cannot undo: a plan is kept as long as its connection, and one made for the
# empty tables of a young gateway read all of them (64 entries took 45 ms beside 6,000 remembered keys). The moment is that
# of this statement, and so after the locks were given; what runs out is held against the clock, by which no index is read.
KNOWN = f"""
SELECT place::int, statement_timestamp(), a.id IS NOT NULL, a.listens, coalesce(u.log_entries, 0), e.log_bytes, k.answer,
       k.fingerprint
FROM unnest($1::text[]::uuid[], $2::text[], $3::text[]::uuid[], $4::text[])
     WITH ORDINALITY AS asked (organization_id, environment, agent_id, key, place)
LEFT JOIN LATERAL (
    SELECT id, EXISTS (
        SELECT 1 FROM webhooks w
        WHERE w.organization_id = asked.organization_id AND w.environment = asked.environment AND {LISTENS}
    ) AS listens
    FROM agents
    WHERE id = asked.agent_id AND organization_id = asked.organization_id AND environment = asked.environment
      AND deleted_at IS NULL
    LIMIT 1
) AS a ON true
LEFT JOIN LATERAL (
    SELECT log_entries FROM monthly_usage
    WHERE organization_id = asked.organization_id AND environment = asked.environment
      AND month = to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM')
    LIMIT 1
) AS u ON true
LEFT JOIN LATERAL (
    SELECT log_bytes FROM environments
    WHERE organization_id = asked.organization_id AND name = asked.environment AND asked.environment = '{TEST}'
    LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT answer, fingerprint FROM idempotency_keys
    WHERE organization_id = asked.organization_id AND environment = asked.environment AND surface = 'log'
      AND key = asked.key AND expires_at > clock_timestamp()
    LIMIT 1
) AS k ON true
"""  # noqa: S608 - our own words
