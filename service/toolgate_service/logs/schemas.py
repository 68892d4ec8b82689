"""Response bodies of log entries."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel


class LogEntryView(BaseModel):
    """A log entry."""

    id: str
    agent_id: str
    agent_name: str
    organization_id: str
    action: str
    status: str
    context: Mapping[str, Any] | None
    ip_address: str | None
    created_at: datetime
    occurred_at: datetime | None
    decision_id: str | None
    approval_id: str | None
    call_id: str | None
    run_id: str | None
