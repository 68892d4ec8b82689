"""How much of its month an organization has used."""

from datetime import UTC, datetime

from support.gateway import LiveGateway, Owner
from support.tables import execute


def use_logs(gateway: LiveGateway, owner: Owner, entries: int, environment: str = "production") -> None:
    """Set this month's counter of log entries."""
    statement = (
        "INSERT INTO monthly_usage VALUES (?, ?, ?, ?) "
        "ON CONFLICT (organization_id, environment, month) DO UPDATE SET log_entries = ?"
    )
    month = datetime.now(UTC).strftime("%Y-%m")
    execute(gateway, statement, owner.user["organization_id"], environment, month, entries, entries)
