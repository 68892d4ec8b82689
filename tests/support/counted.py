"""The counts of a live gateway's log entries, beside the entries themselves."""

from collections import Counter

from support.databases import finished
from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from toolgate_service.db.database import open_database
from toolgate_service.logs.counts import roll_up

#: organization's entries under: environment, subject, name, outcome
Counts = Counter[tuple[str, str, str, str]]

_OUTCOMES = {"success": "succeeded", "failed": "failed", "denied": "blocked", "pending": "held"}


def in_the_log(gateway: LiveGateway, owner: Owner) -> Counts:
    """Count an organization's entries one by one."""
    entries = (
        "SELECT environment, agent_id, action, status FROM log_entries "
        "WHERE organization_id = ? AND status <> 'pending'"
    )
    requests = (
        "SELECT environment, agent_id, action, 'pending' FROM approvals WHERE organization_id = ? "
        "AND replaces IS NULL"
    )
    counted = [
        row for query in (entries, requests) for row in rows(gateway, query, owner.user["organization_id"])
    ]
    found: Counts = Counter()
    for environment, agent, action, status in counted:
        for subject, name in (("all", ""), ("agent", agent), ("action", action)):
            found[environment, subject, name, _OUTCOMES[status]] += 1
    return found


def in_the_counts(gateway: LiveGateway, owner: Owner) -> Counts:
    """Add up what the counts of an organization say, minutes, hours and days."""
    found: Counts = Counter()
    for table in ("log_counts", "day_counts"):
        query = f"SELECT environment, subject, name, {', '.join(_OUTCOMES.values())} FROM {table} WHERE organization_id = ?"
        for environment, subject, name, *counts in rows(gateway, query, owner.user["organization_id"]):
            for outcome, count in zip(_OUTCOMES.values(), counts, strict=True):
                found[environment, subject, name, outcome] += count
    return +found


def age_counts(gateway: LiveGateway, owner: Owner, *, hours: int) -> None:
    """Let an organization's minutes and hours be as many hours older."""
    statement = "UPDATE log_counts SET starts = starts - ? WHERE organization_id = ?"
    execute(gateway, statement, 60 * hours, owner.user["organization_id"])


def fold_counts(gateway: LiveGateway, batch: int = 100) -> int:
    """Fold what is over, as the upkeep does, and return how many rows."""

    async def once() -> int:
        database = open_database(gateway.database_url)
        try:
            return await roll_up(database, batch)
        finally:
            await database.close()

    return finished(once())
