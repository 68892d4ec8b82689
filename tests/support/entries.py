"""Log entries as the writer gets them."""

from typing import Any

from toolgate_service.core.plans import UNLIMITED
from toolgate_service.logs.schemas import NewEntry


def new_entry(**fields: Any) -> NewEntry:
    """Return an entry of an agent "bot", with nothing that may be left out unless it is named."""
    usual: dict[str, Any] = {
        "organization_id": "acme",
        "environment": "production",
        "plan": "free",
        "max_logs_per_month": 3,
        "max_log_bytes": UNLIMITED,
        "key_id": "k",
        "acts_as": None,
        "agent_id": "bot",
        "action": "mail.send",
        "status": "success",
        "context": None,
        "ip_address": None,
        "address_seen": None,
        "occurred_at": None,
        "decision_id": None,
        "approval_id": None,
        "call_id": None,
        "run_id": None,
        "idempotency_key": None,
        "fingerprint": "f",
    }
    return NewEntry(**usual | fields)
