"""Response bodies of the audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel


class AuditEntryView(BaseModel):
    """Audit event: a change of the organization's data, or the display of an API key.

    `user_id` and `user_email` are null if an API key, the operator or the payment provider caused the event.
    """

    id: str
    organization_id: str
    environment: str | None
    kind: str
    resource_id: str | None
    user_id: str | None
    user_email: str | None
    changes: Mapping[str, Any] | None
    ip_address: str | None
    created_at: datetime
